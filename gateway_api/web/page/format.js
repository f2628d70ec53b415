// Values as text.

const grouped = new Intl.NumberFormat('en');
const clock = new Intl.DateTimeFormat('en-GB', {timeStyle: 'medium'});
const day = new Intl.DateTimeFormat('en-GB', {dateStyle: 'medium', timeStyle: 'medium'});
const STEPS = [[1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']];

export const count = number => grouped.format(number);

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

/** For epoch seconds. */
export const age = since => duration(Date.now() / 1000 - since);
export const timeOfDay = since => clock.format(since * 1000);
export const moment = since => day.format(since * 1000);

/** `user_request` is "user request". */
export const words = text => text.replaceAll('_', ' ');

/** What a fault is of: `host_route` of an address is "host route" and the address. */
export const faulty = (kind, object) => `${['ifb', 'vlan'].includes(kind) ? kind.toUpperCase() : words(kind)} ${object}`;
