// A button that copies a value.

import {element} from './elements.js';
import {toast} from './toasts.js';

/** `name` is what is copied, such as "MAC address". */
export function copyButton(name, value) {
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
