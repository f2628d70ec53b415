// The values of a configuration, by path, as the API spells paths.

const PLAIN = /^[A-Za-z_][A-Za-z0-9_-]*$/;

export const pathText = segments => segments.map(segment => (PLAIN.test(segment) ? segment : JSON.stringify(segment))).join('.');

/** True for what has no parts of its own: a list of plain values is one value. */
export const isLeaf = value => value === null || typeof value !== 'object' || (Array.isArray(value) && typeof value[0] !== 'object');

/** The names and values in an object, or the keys and items in a list. An item has one of the fields `keys`; without it, its
    name is its index. */
export function parts(value, keys) {
  if (!Array.isArray(value)) return Object.entries(value);
  const key = keys.find(name => name in value[0]);
  return key ? value.map(item => [String(item[key]), withoutKey(item, key)]) : value.map((item, index) => [String(index), item]);
}

/** Pairs of a path and a value. */
export function* leaves(value, keys, path = []) {
  if (isLeaf(value)) yield [pathText(path), value];
  else for (const [name, held] of parts(value, keys)) yield* leaves(held, keys, [...path, name]);
}

const withoutKey = (item, key) => Object.fromEntries(Object.entries(item).filter(([name]) => name !== key));
