// The public API, as one who signed in sees it. The token is a field of this object and nowhere else.

const ROOT = '/api/v1';
const PATIENCE = 15_000;
export const POLL = {'X-Poll': '1'};

/** The API said no: `message` is its own sentence. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** There was no answer. */
export class Unreachable extends Error {
  constructor() {
    super('The gateway does not answer.');
  }
}

export class Api extends EventTarget {
  #token = null;
  /** Who signed in: `sub` and `role`. */
  claims = null;
  // Seconds that the gateway's clock is ahead of this one, as its answers say.
  #ahead = 0;

  get isAdmin() {
    return this.claims?.role === 'admin';
  }

  async signIn(username, password) {
    const answer = await this.#send('POST', '/auth/login', {body: {username, password}});
    const {access_token: token} = await this.#read(answer);
    this.claims = claimsOf(token);
    this.#token = token;
  }

  /** What time it is at the gateway, in epoch seconds. */
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

  /** The data of an answer, and its entity tag. */
  async ask(method, path, options) {
    const answer = await this.#send(method, path, options);
    return {data: (await this.#read(answer)).data, etag: answer.headers.get('ETag')};
  }

  async get(path, query = {}, options = {}) {
    const given = Object.entries(query).filter(([, value]) => value != null && value !== '');
    const text = new URLSearchParams(given).toString();
    return (await this.ask('GET', text ? `${path}?${text}` : path, options)).data;
  }

  /** What is only looked at again: the log at its default level leaves it out when it goes well. */
  async poll(path, query = {}) {
    return this.get(path, query, {headers: POLL});
  }

  async post(path, body, options = {}) {
    return (await this.ask('POST', path, {...options, body})).data;
  }

  /** An answer that goes on until `signal` or the other side ends it. */
  async open(path, headers, signal) {
    return this.#send('GET', path, {headers, signal});
  }

  async #send(method, path, {body, headers = {}, signal, patience = PATIENCE} = {}) {
    const token = this.#token;
    let answer;
    try {
      answer = await fetch(ROOT + path, {
        method,
        body: body && JSON.stringify(body),
        headers: {...headers, ...(token && {Authorization: `Bearer ${token}`})},
        signal: signal ?? AbortSignal.timeout(patience),
        cache: 'no-store',
        credentials: 'omit',
      });
    } catch (error) {
      if (signal?.aborted) throw error;
      this.#tell('unreachable');
      throw new Unreachable();
    }
    this.#tell('reachable');
    const at = Date.parse(answer.headers.get('Date'));
    if (at) this.#ahead = (at - Date.now()) / 1000;
    if (answer.ok) return answer;
    const refused = new Refused(answer.status, await sentenceOf(answer));
    // Not for one that was sent before somebody signed in again.
    if (answer.status === 401 && token && token === this.#token) {
      this.#token = null;
      this.#tell('expired');
    }
    throw refused;
  }

  /** The whole of an answer, which may break off. */
  async #read(answer) {
    try {
      return await answer.json();
    } catch {
      this.#tell('unreachable');
      throw new Unreachable();
    }
  }

  #tell(what) {
    this.dispatchEvent(new Event(what));
  }
}

async function sentenceOf(answer) {
  try {
    const {message, detail, hint} = await answer.json();
    return hint ? `${message}. ${hint}` : message ?? detail;
  } catch {
    // Whatever stands between us and the API has answered for it.
    return `The gateway answered ${answer.status}.`;
  }
}

function claimsOf(token) {
  const text = atob(token.split('.')[1].replaceAll('-', '+').replaceAll('_', '/'));
  return JSON.parse(new TextDecoder().decode(Uint8Array.from(text, letter => letter.charCodeAt(0))));
}
