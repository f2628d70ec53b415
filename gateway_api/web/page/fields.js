// Names and values of one record.

import {copyButton} from './copy.js';
import {element} from './elements.js';
import {redraw} from './focus.js';

/** Shows fields in a `dl`: `name`, `text`, and if wanted the value to `copy` and a `look`. */
export function drawFields(place, fields) {
  redraw(place, fields.map(({name, text, copy, look = ''}) => element('div', {'data-key': name}, element('dt', {text: name}),
    element('dd', {}, element('span', {class: look, text}), ...(copy ? [' ', copyButton(name, copy)] : [])))));
}
