// Values as text.

const grouped = new Intl.NumberFormat('en');
const TIME = {hour: '2-digit', minute: '2-digit', second: '2-digit', timeZoneName: 'short'};
const clock = new Intl.DateTimeFormat('en-GB', TIME);
// With the offset of its zone: the API and gatewayctl read it, where a name such as CET has several meanings.
const day = new Intl.DateTimeFormat('en-GB', {...TIME, day: 'numeric', month: 'short', year: 'numeric', timeZoneName: 'shortOffset'});
const short = new Intl.DateTimeFormat('en-GB', {day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit', timeZoneName: 'short'});
const STEPS = [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']];

export const count = number => grouped.format(number);
export const sessions = number => `${count(number)} session${number === 1 ? '' : 's'}`;

/** A path or fragment with a query, without values that are null or empty. */
export function withQuery(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value != null && value !== '');
  const text = new URLSearchParams(given).toString();
  return text ? `${path}?${text}` : path;
}

/** 1234567 and "bit/s" is "1.23 Mbit/s", with a space that does not break a line. */
export function scaled(number, unit) {
  // A value that rounds to 1000 is 1 of the next unit.
  const [step, letter] = STEPS.find(([least]) => number >= 0.9995 * least) ?? [1, ''];
  const value = number / step;
  const text = step === 1 ? value.toFixed(0) : Number.isInteger(value) ? value : value.toPrecision(3);
  return `${text}\u00a0${letter}${unit}`;
}

/** Bits per second as a rate that the API accepts, exact. */
export function rateText(bits) {
  const [step, letter] = STEPS.find(([least]) => bits >= least && bits % (least / 1000) === 0) ?? [1, ''];
  return `${bits / step} ${letter}bit`;
}

/** Attributes of an input for a rate. It needs a unit: to the API, a number alone is bits per second. */
export const RATE = {pattern: '.*[A-Za-z].*', title: 'A number and a unit, for example 250 Mbit'};

export const percent = (part, whole) => (whole ? `${Math.round(100 * part / whole)} %` : '');

/** Seconds in the two largest units. */
export function duration(seconds) {
  const rest = Math.max(0, Math.floor(seconds));
  const parts = [[Math.floor(rest / 86400), 'd'], [Math.floor(rest / 3600) % 24, 'h'],
    [Math.floor(rest / 60) % 60, 'min'], [rest % 60, 's']];
  const first = parts.findIndex(([number]) => number);
  if (first < 0) return '0 s';
  return parts.slice(first, first + 2).filter(([number]) => number).map(([number, unit]) => `${number} ${unit}`).join(' ');
}

/** Seconds of a request, in milliseconds. */
export const scaledTime = seconds => `${count(Math.round(1000 * seconds))}\u00a0ms`;

/** For epoch seconds. Times have the zone of the browser, and name it or its offset. */
export const timeOfDay = since => clock.format(since * 1000);
export const dayAndTime = since => short.format(since * 1000);
/** A line may break only between the day and the time. */
export const moment = since => day.format(since * 1000).replace(/GMT(?:\+0)?$/, 'UTC').replaceAll(' ', '\u00a0').replace(',\u00a0', ', ');

/** ISO 8601 in UTC, for the time that a field of a form has in the zone of the browser; and the other way round. */
export const isoTime = local => new Date(local).toISOString();
export function localTime(iso) {
  const at = new Date(iso);
  return Number.isNaN(at.getTime()) ? '' : new Date(at - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** `user_request` is "user request". */
export const words = text => text.replaceAll('_', ' ');

/** The name of a field as a label. */
export const title = name => name[0].toUpperCase() + words(name).slice(1);

/** A text that can be the id of a session. */
export const ID = /^[1-9][0-9]*$/;

/** Describe the subscriber of a session: username, address and MAC address. */
export const subscriber = ({username, ip_address: address, ipv6_address: other, mac_address: mac}) =>
  [username, address ?? other, mac].filter(Boolean).join(', ');

/** A filter as text: "type pppoe, search trunk0.1000". */
export const conditions = filter => Object.entries(filter).map(([name, value]) => `${words(name)} ${value}`).join(', ');

/** What a fault is of: `host_route` of an address is "host route" and the address. */
export const faulty = (kind, object) => `${['ifb', 'vlan'].includes(kind) ? kind.toUpperCase() : words(kind)} ${object}`;
