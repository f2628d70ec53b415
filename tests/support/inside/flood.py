"""A flood of first frames from the subscribers' side of the trunk: all VLAN ids, again and again."""

from tests.support.first_frames import DOT1Q, padi, tagged
from tests.support.trunks import send

FRAMES = 20_000
_VLAN_IDS = 4094

if __name__ == "__main__":
    send((tagged(padi(), (DOT1Q, 1 + number % _VLAN_IDS)) for number in range(FRAMES)), "cpe0")
