// The events of all sessions, from when somebody signed in: none missed and none twice, whatever breaks.

import {messages} from './messages.js';

const PATH = '/events/subscribers';
// The API sends a heartbeat every 15 s.
const SILENCE = 40_000;
const FIRST_PAUSE = 500, LONGEST_PAUSE = 8_000;
// An id that nobody has given: the answer to it is a gap, whose id is where we are now. Without a place to resume
// at, a connection that is lost before its first event would lose what comes until the next one.
const NOWHERE = 'none-0';

/** Tells of `events` (its `detail` is what came since the last frame), `gap`, `live` and `lost`. */
export class Stream extends EventTarget {
  #api;
  #position = NOWHERE;
  #batch = [];
  #stop = null;

  constructor(api) {
    super();
    this.#api = api;
    // A browser has six connections for all tabs: those that nobody looks at must not hold them.
    document.addEventListener('visibilitychange', () => this.#wanted && (document.hidden ? this.#close() : this.#open()));
  }

  #wanted = false;

  /** The id of the last event that was told. */
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
      this.#tell('lost');
      await new Promise(resolve => setTimeout(resolve, pause * (0.5 + Math.random())));
    }
  }

  /** Until the connection ends; whether anything came over it. */
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
      const answer = await this.#api.open(PATH, {'Last-Event-ID': this.#position}, signal);
      this.#tell('live');
      for await (const arrived of messages(answer.body, heard)) this.#take(arrived);
    } catch (error) {
      // Whatever ended it, it is opened again, and goes on where it was.
      console.debug('the event stream ended:', error.message);
    } finally {
      clearTimeout(timer);
      // Whatever went wrong: a connection that nobody reads would stay one of the browser's few.
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
    if (gap) this.#tell('gap', gap);
    this.#tell('events', batch.filter(message => message.name !== 'gap'));
  }

  #tell(what, detail) {
    this.dispatchEvent(new CustomEvent(what, {detail}));
  }
}
