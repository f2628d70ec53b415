// The client of the API. The browser keeps the token, where no script can read it.
// @ts-check

import {withQuery} from './format.js';

export const ROOT = '/api/v1';
const TIMEOUT = 15_000;
/** Milliseconds for a commit and its confirmation: the API gives the core 30 s. */
export const COMMIT_TIMEOUT = 40_000;
export const POLL = {'X-Poll': '1'};
// Without it the API does not accept the browser's token: see web/access.py.
const FROM_PAGE = {'X-Gateway-Page': '1'};

/** @typedef {{username: string, role: string}} User */
/** `timeout` is in milliseconds, and without effect beside a `signal`.
    @typedef {{body?: object, headers?: Record<string, string>, signal?: AbortSignal, timeout?: number}} Options */
/** @typedef {Record<string, string | number | boolean | null | undefined>} Query */

/** An error response; `message` is its text. */
export class Refused extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** No response, or an incomplete one. */
export class Unreachable extends Error {
  constructor() {
    super('The gateway does not respond.');
  }
}

export class Api extends EventTarget {
  /** The user of the token; null before the sign-in and when it is no longer valid.
      @type {User | null} */
  user = null;
  // Seconds by which the gateway's clock is ahead of this one, from the Date header.
  #ahead = 0;

  get isAdmin() {
    return this.user?.role === 'admin';
  }

  /** @param {string} username @param {string} password */
  async signIn(username, password) {
    await this.#send('POST', '/auth/login', {body: {username, password}});
    if (!await this.resume()) throw new Refused(401, 'The browser did not keep the token. Allow this site to store data.');
  }

  /** Continues with the token that the browser has. Returns whether it is valid. */
  async resume() {
    this.user = (await this.get('/auth/token')).user;
    return this.user !== null;
  }

  /** The gateway's time, in epoch seconds. */
  now() {
    return Date.now() / 1000 + this.#ahead;
  }

  async signOut() {
    await this.post('/auth/logout');
  }

  /** Ends all tokens of the user, this one included. */
  async signOutEverywhere() {
    await this.post('/auth/logout-everywhere');
  }

  /** The data of a response, and its entity tag.
      @param {string} method @param {string} path @param {Options} [options] */
  async ask(method, path, options) {
    const response = await this.#send(method, path, options);
    return {data: (await this.#read(response)).data, etag: response.headers.get('ETag')};
  }

  /** @param {string} path @param {Query} query @param {Options} options */
  async get(path, query = {}, options = {}) {
    return (await this.ask('GET', withQuery(path, query), options)).data;
  }

  /** A document of the API, without the envelope. @param {string} name */
  async document(name) {
    return this.#read(await this.#send('GET', `/${name}`));
  }

  /** A repeated GET. If it succeeds, the log has it only at level debug.
      @param {string} path @param {Query} query */
  async poll(path, query = {}) {
    return this.get(path, query, {headers: POLL});
  }

  /** @param {string} path @param {object} [body] @param {Options} options */
  async post(path, body, options = {}) {
    return (await this.ask('POST', path, {...options, body})).data;
  }

  /** A response without an end, until `signal` or the API ends it.
      @param {string} path @param {Record<string, string>} headers @param {AbortSignal} signal */
  async open(path, headers, signal) {
    return this.#send('GET', path, {headers, signal});
  }

  /** @param {string} method @param {string} path @param {Options} options */
  async #send(method, path, {body, headers = {}, signal, timeout = TIMEOUT} = {}) {
    const user = this.user;
    let response;
    try {
      response = await fetch(ROOT + path, {
        method,
        body: body && JSON.stringify(body),
        headers: {...headers, ...FROM_PAGE},
        signal: signal ?? AbortSignal.timeout(timeout),
        cache: 'no-store',
        credentials: 'same-origin',
      });
    } catch (error) {
      if (signal?.aborted) throw error;
      this.#emit('unreachable');
      throw new Unreachable();
    }
    this.#emit('reachable');
    const at = Date.parse(response.headers.get('Date') ?? '');
    if (at) this.#ahead = (at - Date.now()) / 1000;
    if (response.ok) return response;
    const refused = new Refused(response.status, await sentenceOf(response));
    // Not for a request from before the last sign-in: its 401 is about the former token.
    if (response.status === 401 && user && user === this.user) {
      this.user = null;
      this.#emit('expired');
    }
    throw refused;
  }

  /** The JSON of a response, whose connection may break. @param {Response} response */
  async #read(response) {
    try {
      return await response.json();
    } catch {
      this.#emit('unreachable');
      throw new Unreachable();
    }
  }

  /** @param {string} what */
  #emit(what) {
    this.dispatchEvent(new Event(what));
  }
}

/** @param {Response} response */
async function sentenceOf(response) {
  try {
    const {message, detail, hint} = await response.json();
    return hint ? `${message}. ${hint}` : message ?? detail;
  } catch {
    // The response is not from the API, but from a proxy before it.
    return `The gateway responded with ${response.status}.`;
  }
}
