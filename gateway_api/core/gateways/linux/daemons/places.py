"""Where the core and the daemons beside it meet. The units and `packaging/pppoe` name the same places."""

import sys
from pathlib import Path

from gateway_api.core.configuration.services import SERVICES_FOLDER

#: What the core writes for the daemons. Only root and the core enter it.
SERVICES = Path(SERVICES_FOLDER)
#: The interfaces of accel-ppp's IPoE, which its configuration includes.
IPOE_INTERFACES = SERVICES / "ipoe-interfaces"
#: The password of accel-ppp's command line, which its configuration includes.
ACCEL_PPP_PASSWORD = SERVICES / "accel-ppp-password"
#: The sessions and their ids.
SESSIONS = Path("/var/lib/gateway-core/sessions")
#: One file for each access interface with a pppoe-server.
PPPOE_SETTINGS = Path("/var/lib/gateway-core/pppoe")
#: The records of pppd's hooks.
PPPD_RECORDS = Path("/run/gateway-pppoe")
#: The lease file of dnsmasq, its process id, and the records of its script.
DNSMASQ_LEASES = Path("/var/lib/gateway-dnsmasq/leases")
DNSMASQ_PID = Path("/run/gateway-dnsmasq/dnsmasq.pid")
#: Its script, beside the programs.
LEASE_SCRIPT = Path(sys.prefix, "dhcp-lease")
DNSMASQ_RECORDS = Path("/run/gateway-dnsmasq/leases")
#: The datagram socket of the core for hooks and scripts, which are of other users: mode 666. A datagram only
#: brings the next look at the sources forward.
TRIGGER = Path("/run/gateway-core/trigger")
