// Whether what is on the screen is true now.

import {byId, write} from './elements.js';

const WORDS = {
  live: ['good', 'Live'],
  lost: ['bad', 'Connection lost: trying again'],
  waiting: ['idle', 'Connecting'],
};

export class Connection {
  #reachable = true;
  #stream = 'waiting';

  constructor(api, stream) {
    api.addEventListener('reachable', () => this.#set({reachable: true}));
    api.addEventListener('unreachable', () => this.#set({reachable: false}));
    for (const state of ['live', 'lost']) stream.addEventListener(state, () => this.#set({stream: state}));
    this.#set({});
  }

  #set({reachable = this.#reachable, stream = this.#stream}) {
    this.#reachable = reachable;
    this.#stream = stream;
    const [level, word] = WORDS[reachable ? stream : 'lost'];
    write('connection', word);
    byId('connection').className = `state ${level}`;
    document.body.classList.toggle('lost', level === 'bad');
  }
}
