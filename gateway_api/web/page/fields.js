// Names and values of one record. Elements stay while their values stay: one of them may have the focus.

import {copyButton} from './copy.js';
import {element} from './elements.js';

export class Fields {
  #place;
  #shown = '';

  /** `place` is a `dl`. */
  constructor(place) {
    this.#place = place;
  }

  clear() {
    this.#place.replaceChildren();
    this.#shown = '';
  }

  /** Shows fields: `name`, `text`, and if wanted the value to `copy` and a `look`. */
  show(fields) {
    const names = JSON.stringify(fields.map(({name, copy}) => [name, copy]));
    if (names !== this.#shown) this.#place.replaceChildren(...fields.map(row));
    this.#shown = names;
    fields.forEach(({text, look = ''}, index) => {
      const value = this.#place.children[index].lastElementChild.firstElementChild;
      if (value.textContent !== text) value.textContent = text;
      value.className = look;
    });
  }
}

function row({name, copy}) {
  return element('div', {}, element('dt', {text: name}),
    element('dd', {}, element('span'), ...(copy ? [' ', copyButton(name, copy)] : [])));
}
