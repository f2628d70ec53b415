// The traffic of the open session, each second, while a user looks at it.

import {Refused, Unreachable} from './api.js';
import {Chart} from './chart.js';
import {byId} from './elements.js';
import {scaled} from './format.js';
import {messages} from './messages.js';

// A sample comes each second.
const SPAN = 300, SILENCE = 10_000, PAUSE = 5_000;
const bits = number => scaled(number, 'bit/s');

/** Emits `rates`: its `detail` is a text. */
export class LiveTraffic extends EventTarget {
  #api;
  #id = null;
  #stop = null;
  #chart = new Chart(byId('record-chart'), {span: SPAN, step: 1, format: bits, least: 1000, names: ['down', 'up']});

  constructor(api) {
    super();
    this.#api = api;
    // A browser has six connections for all tabs: hidden tabs must not hold one.
    document.addEventListener('visibilitychange', () => this.#renew());
    addEventListener('hashchange', () => this.#renew());
  }

  /** Follows a session; null is for none. */
  follow(id) {
    if (id !== this.#id) this.#chart.clear();
    this.#id = id;
    this.#renew();
  }

  get #wanted() {
    return this.#id !== null && !document.hidden && byId('record').checkVisibility();
  }

  #renew() {
    if (this.#wanted === (this.#stop !== null) && this.#stop?.id === this.#id) return;
    this.#stop?.abort();
    this.#stop = null;
    if (this.#wanted) this.#run(this.#id);
  }

  async #run(id) {
    const stop = this.#stop = new AbortController();
    stop.id = id;
    while (!stop.signal.aborted) {
      try {
        if (await this.#read(id, stop.signal)) return;
      } catch (error) {
        if (!(error instanceof Refused || error instanceof Unreachable)) console.debug('the traffic stream ended:', error.message);
        // No such session: its record tells.
        if (error.status === 404) return;
      }
      this.#chart.push(null);
      await new Promise(resolve => setTimeout(resolve, PAUSE));
    }
  }

  /** Reads until the connection ends. True if the session has ended. */
  async #read(id, stop) {
    const over = new AbortController();
    let timer;
    const heard = () => {
      clearTimeout(timer);
      timer = setTimeout(() => over.abort(), SILENCE);
    };
    heard();
    try {
      const response = await this.#api.open(`/subscribers/${id}/traffic`, {}, AbortSignal.any([stop, over.signal]));
      for await (const arrived of messages(response.body, heard)) {
        for (const {name, data} of arrived) {
          if (name === 'ended') return true;
          this.#take(data);
        }
      }
      return false;
    } finally {
      clearTimeout(timer);
      over.abort();
    }
  }

  #take({down_bps: down, up_bps: up}) {
    this.#chart.push({up: down, down: up});
    this.dispatchEvent(new CustomEvent('rates', {detail: `${bits(down)} down, ${bits(up)} up`}));
  }
}
