// The running configuration as a tree. What a user has opened stays open when the configuration changes.

import {element} from './elements.js';
import {redraw} from './focus.js';
import {isLeaf, parts, pathText} from './leaves.js';
import {link} from './views.js';

/** `keys` are those of `parts`. */
export function drawTree(place, configuration, keys) {
  const open = new Set([...place.querySelectorAll('details[open]')].map(({dataset}) => dataset.path));
  redraw(place, [branch(configuration, keys, [], open)]);
}

/** Opens the branches that lead to a path. */
export function reveal(place, path) {
  for (const details of place.querySelectorAll('details')) {
    if (path.startsWith(`${details.dataset.path}.`)) details.open = true;
  }
}

function branch(value, keys, path, open) {
  return element('ul', {class: 'tree'}, ...parts(value, keys).map(([name, held]) => {
    const here = [...path, name], text = pathText(here);
    if (isLeaf(held)) {
      return element('li', {}, element('a', {href: link('configuration', {path: text}), text: name}), ' ',
        element('code', {text: JSON.stringify(held)}));
    }
    return element('li', {}, element('details', {'data-path': text, open: open.has(text)},
      element('summary', {text: name}), branch(held, keys, here, open)));
  }));
}
