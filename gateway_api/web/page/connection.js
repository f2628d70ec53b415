// The state of the connection: whether the screen is up to date.

import {Refused, Unreachable} from './api.js';
import {byId, write} from './elements.js';
import {Poll} from './poll.js';

// The API gives up after 3 s on a core that hangs, so the page shows it well within 10 s.
const SECONDS = 2;

const WORDS = {
  live: ['good', 'Live'],
  hangs: ['bad', 'The core daemon does not reply: retrying'],
  lost: ['bad', 'Connection lost: retrying'],
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
    // Not seen in the event stream: the API keeps it alive while the core hangs.
    new Poll(SECONDS, async () => this.#set({core: await this.#replies(api)}));
    this.#set({});
  }

  /** True if the core daemon replies. */
  async #replies(api) {
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
