// The number of sessions, by type.

import {write} from './elements.js';
import {count, percent} from './format.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';

const QUIET = 10, LEAST = 1_000;

export class Counts {
  #due = null;

  constructor(api, stream) {
    const read = async () => {
      const {total, pppoe, dhcp} = await api.poll('/subscribers/summary');
      write('total', count(total));
      for (const [id, number] of Object.entries({pppoe, dhcp})) {
        write(id, count(number));
        write(`${id}-share`, percent(number, total));
      }
    };
    const poll = new Poll(QUIET, () => shown('summary-problem', read), ['overview']);
    // session_down has no type. The request is cheap, and is sent at most once per second.
    stream.addEventListener('events', ({detail}) => {
      if (!detail.length || this.#due) return;
      this.#due = setTimeout(() => {
        this.#due = null;
        poll.now();
      }, LEAST);
    });
    stream.addEventListener('gap', () => poll.now());
  }
}
