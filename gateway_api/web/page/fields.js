// Names and values of one record.

import {element} from './elements.js';
import {redraw} from './focus.js';
import {toast} from './toasts.js';

/** Shows fields in a `dl`: `name`, `text`, and if wanted the value to `copy` and a `look`. */
export function drawFields(place, fields) {
  redraw(place, fields.map(({name, text, copy, look = ''}) => element('div', {'data-key': name}, element('dt', {text: name}),
    element('dd', {}, element('span', {class: look, text}), ...(copy ? [' ', copyButton(name, copy)] : [])))));
}

/** A button that copies a value. `name` is what is copied, such as "MAC address". */
function copyButton(name, value) {
  return element('button', {type: 'button', class: 'copy quiet', 'aria-label': `Copy ${name}`, text: 'Copy', onclick: async () => {
    try {
      await navigator.clipboard.writeText(value);
      toast(`Copied ${value}`);
    } catch {
      // The user or the browser's settings do not allow it.
      toast('The browser does not allow copying.');
    }
  }});
}
