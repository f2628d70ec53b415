// Whether what is on the screen is true now.

import {Refused, Unreachable} from './api.js';
import {byId, write} from './elements.js';
import {Poll} from './poll.js';

// The API takes up to 3 s to give up on a core that hangs: together well below 10 s.
const SECONDS = 2;

const WORDS = {
  live: ['good', 'Live'],
  hangs: ['bad', 'The core daemon does not answer: trying again'],
  lost: ['bad', 'Connection lost: trying again'],
  waiting: ['idle', 'Connecting'],
};

export class Connection {
  #reachable = true;
  #core = true;
  #stream = 'waiting';

  constructor(api, stream) {
    api.addEventListener('reachable', () => this.#set({reachable: true}));
    api.addEventListener('unreachable', () => this.#set({reachable: false}));
    for (const state of ['live', 'lost']) stream.addEventListener(state, () => this.#set({stream: state}));
    // The event stream goes on while the core hangs: the API itself keeps it alive.
    new Poll(SECONDS, async () => this.#set({core: await this.#answers(api)}));
    this.#set({});
  }

  /** Whether the core daemon answers. */
  async #answers(api) {
    try {
      await api.get('/system/health');
      return true;
    } catch (error) {
      if (error instanceof Unreachable) return this.#core;
      if (error instanceof Refused) return false;
      throw error;
    }
  }

  #set({reachable = this.#reachable, core = this.#core, stream = this.#stream}) {
    this.#reachable = reachable;
    this.#core = core;
    this.#stream = stream;
    const [level, word] = WORDS[!reachable ? 'lost' : core ? stream : 'hangs'];
    write('connection', word);
    byId('connection').className = `state ${level}`;
    document.body.classList.toggle('lost', level === 'bad');
  }
}
