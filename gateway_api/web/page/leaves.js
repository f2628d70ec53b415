// The values of a configuration, by path, as the API spells paths.

const PLAIN = /^[A-Za-z_][A-Za-z0-9_-]*$/;
// The keys of list items: a path with a key needs no index.
const KEYS = ['username', 'address', 'name'];

export const pathText = segments => segments.map(segment => (PLAIN.test(segment) ? segment : JSON.stringify(segment))).join('.');

/** True for what has no parts of its own: a list of plain values is one value. */
export const isLeaf = value => value === null || typeof value !== 'object' || (Array.isArray(value) && typeof value[0] !== 'object');

/** The field of its items by which a list names them, if it does. */
export const keyOf = items => KEYS.find(name => name in items[0]);

/** The names and values in an object, or the keys and items in a list. */
export function parts(value) {
  if (!Array.isArray(value)) return Object.entries(value);
  const key = keyOf(value);
  return key ? value.map(item => [String(item[key]), withoutKey(item, key)]) : value.map((item, index) => [String(index), item]);
}

/** Pairs of a path and a value. */
export function* leaves(value, path = []) {
  if (isLeaf(value)) yield [pathText(path), value];
  else for (const [name, held] of parts(value)) yield* leaves(held, [...path, name]);
}

const withoutKey = (item, key) => Object.fromEntries(Object.entries(item).filter(([name]) => name !== key));
