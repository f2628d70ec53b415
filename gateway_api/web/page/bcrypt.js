// Hashes of passwords, in the browser: no password of another user goes to the API, which takes hashes. The algorithm is
// bcrypt (Provos and Mazières, "A Future-Adaptable Password Scheme", 1999) in its version 2b.

/** bcrypt ignores further bytes. */
export const MAX_BYTES = 72;
// The binary logarithm of the rounds: as the API's own hashes.
const COST = 12;
// Rounds between two pauses, in which the page takes clicks.
const AT_ONCE = 64;

const ALPHABET = './ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789';
const TEXT = 'OrpheanBeholderScryDoubt';
const SUBKEYS = 18, BOXES = 1024;

/** The hash of a password, in a second or so. */
export async function hash(password) {
  const salt = crypto.getRandomValues(new Uint8Array(16));
  const bytes = new Uint8Array([...new TextEncoder().encode(password), 0]).subarray(0, MAX_BYTES);
  const cipher = new Blowfish(), key = words(bytes), salted = words(salt);
  cipher.expand(key, salted);
  for (let round = 0; round < 2 ** COST; round += 1) {
    if (round % AT_ONCE === 0) await new Promise(resolve => setTimeout(resolve));
    cipher.expand(key);
    cipher.expand(salted);
  }
  const block = words(new TextEncoder().encode(TEXT)).slice(0, TEXT.length / 4);
  for (let at = 0; at < block.length; at += 2) {
    for (let time = 0; time < 64; time += 1) cipher.encrypt(block, at);
  }
  const view = new DataView(new ArrayBuffer(TEXT.length));
  block.forEach((word, index) => view.setInt32(4 * index, word));
  // The last byte is left out.
  return `$2b$${COST}$${base64(salt)}${base64(new Uint8Array(view.buffer, 0, TEXT.length - 1))}`;
}

/** Blowfish (Schneier 1993), whose key may be mixed in again and again. */
class Blowfish {
  static #start = null;

  constructor() {
    Blowfish.#start ??= fractionOfPi(SUBKEYS + BOXES);
    this.subkeys = Blowfish.#start.slice(0, SUBKEYS);
    this.boxes = Blowfish.#start.slice(SUBKEYS);
  }

  /** Mixes in a key and a salt, as words of `words`; null is a salt of zeros. */
  expand(key, salt = null) {
    const {subkeys, boxes} = this, block = new Int32Array(2);
    for (let index = 0; index < SUBKEYS; index += 1) subkeys[index] ^= key[index];
    let taken = 0;
    for (const target of [subkeys, boxes]) {
      for (let index = 0; index < target.length; index += 2) {
        if (salt) {
          // Four words are all of a salt.
          block[0] ^= salt[taken % 4];
          block[1] ^= salt[(taken + 1) % 4];
          taken += 2;
        }
        this.encrypt(block, 0);
        target[index] = block[0];
        target[index + 1] = block[1];
      }
    }
  }

  /** Encrypts two words of `block` in their place. */
  encrypt(block, at) {
    const {subkeys, boxes} = this;
    let left = block[at] ^ subkeys[0], right = block[at + 1];
    for (let round = 1; round <= 16; round += 2) {
      right ^= mixed(boxes, left) ^ subkeys[round];
      left ^= mixed(boxes, right) ^ subkeys[round + 1];
    }
    block[at] = right ^ subkeys[17];
    block[at + 1] = left;
  }
}

const mixed = (boxes, word) =>
  ((boxes[word >>> 24] + boxes[256 | word >>> 16 & 255] ^ boxes[512 | word >>> 8 & 255]) + boxes[768 | word & 255]) | 0;

/** As many words as there are subkeys, of bytes that repeat. */
function words(bytes) {
  const byte = index => bytes[index % bytes.length];
  return Int32Array.from({length: SUBKEYS}, (_, index) =>
    byte(4 * index) << 24 | byte(4 * index + 1) << 16 | byte(4 * index + 2) << 8 | byte(4 * index + 3));
}

/** The first words of the digits of pi after its point, with which Blowfish begins (Machin's formula). */
function fractionOfPi(number) {
  const bits = 32 * number, spare = 64n, one = 1n << BigInt(bits) + spare;
  const arctangent = inverse => {
    let power = one / inverse, sum = power;
    for (let odd = 3n; power; odd += 2n) {
      power /= -inverse * inverse;
      sum += power / odd;
    }
    return sum;
  };
  const fraction = 16n * arctangent(5n) - 4n * arctangent(239n) - 3n * one >> spare;
  const digits = fraction.toString(16).padStart(bits / 4, '0');
  return Int32Array.from({length: number}, (_, index) => parseInt(digits.slice(8 * index, 8 * index + 8), 16));
}

/** bcrypt's own base64: another alphabet, and no padding. */
function base64(bytes) {
  const bits = [...bytes].map(byte => byte.toString(2).padStart(8, '0')).join('');
  return bits.match(/.{1,6}/g).map(six => ALPHABET[parseInt(six.padEnd(6, '0'), 2)]).join('');
}
