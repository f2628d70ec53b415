// Search text to filters of the API.

const NUMBER = /^[1-9][0-9]{0,15}$/;
// Any spelling that the API accepts; it refuses others.
const MAC = /^(?:[0-9a-f]{2}([:-])[0-9a-f]{2}(?:\1[0-9a-f]{2}){4}|[0-9a-f]{4}([.-])[0-9a-f]{4}\2[0-9a-f]{4}|[0-9a-f]{12})$/i;
const IPV4 = /^(?:(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])(?:\.(?!$)|$)){4}$/;
const OF_IPV6 = /^[0-9a-f:.]+$/i;

/** Any spelling (RFC 4291 section 2.2): the browser knows them from URLs. */
function isIpv6(text) {
  if (!OF_IPV6.test(text)) return false;
  try {
    return Boolean(new URL(`http://[${text}]/`));
  } catch {
    return false;
  }
}

/** The filters to try for a text, in order until one finds a session; `{id}` is a session id, not a filter. */
export function filtersFor(text) {
  const wanted = text.trim();
  if (!wanted) return [{}];
  const filters = [];
  if (NUMBER.test(wanted)) filters.push({id: Number(wanted)});
  // A DHCP subscriber may have such a username, too.
  if (MAC.test(wanted)) filters.push({mac_address: wanted});
  if (IPV4.test(wanted) || isIpv6(wanted)) filters.push({ip_address: wanted});
  filters.push({username: wanted});
  return filters.length > 1 ? filters : [...filters, {interface: wanted}];
}
