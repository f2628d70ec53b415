// The events of all sessions since the sign-in. It resumes after a failure, without a lost or a repeated event.

import {isShown, messages} from './messages.js';

const PATH = '/events/subscribers';
// The API sends a heartbeat every 15 s.
const SILENCE = 40_000;
const FIRST_PAUSE = 500, LONGEST_PAUSE = 8_000;
// An unknown id: the API responds with a gap, whose id is the current position. Without a position, a connection that
// is lost before its first event would lose the events until the next connection.
const NOWHERE = 'none-0';

/** Emits `events` (its `detail` is those since the last frame), `gap`, `live` and `lost`. */
export class Stream extends EventTarget {
  #api;
  #position = NOWHERE;
  #batch = [];
  #stop = null;

  constructor(api) {
    super();
    this.#api = api;
    // A browser has six connections for all tabs: hidden tabs must not hold one.
    document.addEventListener('visibilitychange', () => this.#wanted && (document.hidden ? this.#close() : this.#open()));
  }

  #wanted = false;

  /** The id of the last event. */
  get position() {
    return this.#position;
  }

  start() {
    this.#wanted = true;
    if (!document.hidden) this.#open();
  }

  stop() {
    this.#wanted = false;
    this.#close();
  }

  #close() {
    this.#stop?.abort();
    this.#stop = null;
  }

  async #open() {
    this.#close();
    const stop = this.#stop = new AbortController();
    for (let pause = FIRST_PAUSE; !stop.signal.aborted; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
      if (await this.#follow(stop.signal)) pause = FIRST_PAUSE;
      if (stop.signal.aborted) return;
      this.#emit('lost');
      await new Promise(resolve => setTimeout(resolve, pause * (0.5 + Math.random())));
    }
  }

  /** Reads until the connection ends. True if it received anything. */
  async #follow(stop) {
    const over = new AbortController();
    let timer, came = false;
    const wait = () => {
      clearTimeout(timer);
      timer = setTimeout(() => over.abort(), SILENCE);
    };
    const heard = () => {
      came = true;
      wait();
    };
    wait();
    try {
      const signal = AbortSignal.any([stop, over.signal]);
      const response = await this.#api.open(PATH, {'Last-Event-ID': this.#position}, signal);
      if (this.#position !== NOWHERE) this.#emit('live');
      for await (const arrived of messages(response.body, heard)) {
        const first = this.#position === NOWHERE;
        this.#take(arrived);
        // Not before: an event before the first position does not come.
        if (first) this.#emit('live');
      }
    } catch (error) {
      // The caller opens it again at the last position.
      console.debug('the event stream ended:', error.message);
    } finally {
      clearTimeout(timer);
      // Also after an error: an unread connection would stay one of the browser's six.
      over.abort();
    }
    return came;
  }

  #take(arrived) {
    if (!this.#batch.length) requestAnimationFrame(() => this.#flush());
    for (const message of arrived) this.#batch.push(message);
    this.#position = arrived.at(-1).id;
  }

  #flush() {
    const batch = this.#batch;
    this.#batch = [];
    const gap = batch.findLast(message => message.name === 'gap');
    if (gap) this.#emit('gap', gap);
    this.#emit('events', batch.filter(isShown));
  }

  #emit(what, detail) {
    this.dispatchEvent(new CustomEvent(what, {detail}));
  }
}
