// The latest events, one per line. A button pauses them.

import {byId, element} from './elements.js';
import {redraw} from './focus.js';
import {timeOfDay, words} from './format.js';
import {link} from './views.js';

const HELD = 10;

export class Feed {
  #latest = [];
  #paused = false;

  constructor(stream) {
    stream.addEventListener('events', ({detail}) => {
      this.#latest = [...detail.slice(-HELD).reverse(), ...this.#latest].slice(0, HELD);
      if (detail.length) this.#draw();
    });
    const button = byId('feed-pause');
    button.addEventListener('click', () => {
      this.#paused = !this.#paused;
      button.ariaPressed = String(this.#paused);
      this.#draw();
    });
  }

  #draw() {
    if (this.#paused) return;
    byId('feed-empty').hidden = this.#latest.length > 0;
    redraw(byId('feed'), this.#latest.map(event => this.#line(event)));
  }

  #line({name, data}) {
    const up = name === 'session_up';
    const who = up
      ? element('a', {href: link('subscribers', {search: data.id, open: data.id}), class: 'who', text: data.username})
      : element('span', {class: 'who', text: data.username});
    return element('li', {class: up ? 'up' : 'down', 'data-key': `${name} ${data.id}`},
      element('span', {class: 'mark', text: up ? 'up' : 'down'}), who,
      element('span', {class: 'note', text: up ? [data.type, data.ip_address].filter(Boolean).join(', ') : words(data.reason)}),
      element('time', {text: timeOfDay(data.at)}));
  }
}
