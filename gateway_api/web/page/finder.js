// From what somebody knows of a subscriber to what the API can be asked.

const NUMBER = /^[1-9][0-9]{0,15}$/;
const MAC = /^[0-9a-f]{2}(?:([:-])[0-9a-f]{2}(?:\1[0-9a-f]{2}){4}|(?:[0-9a-f]{2}){5}|[0-9a-f]{2}(?:\.[0-9a-f]{4}){2})$/i;
const ADDRESS = /^(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9a-f]*:[0-9a-f:.]*)$/i;

/** The filters to try for a text, one after the other until somebody is found; `{id}` is a session's own. */
export function filtersFor(text) {
  const wanted = text.trim();
  if (!wanted) return [{}];
  if (NUMBER.test(wanted)) return [{id: Number(wanted)}, {username: wanted}];
  // As the API has them. A DHCP subscriber may be known by such a name, too.
  if (MAC.test(wanted)) return [{mac_address: colons(wanted)}, {username: wanted}];
  if (ADDRESS.test(wanted)) return [{ip_address: wanted}, {username: wanted}];
  return [{username: wanted}, {interface: wanted}];
}

function colons(mac) {
  return mac.toLowerCase().replace(/[^0-9a-f]/g, '').match(/../g).join(':');
}
