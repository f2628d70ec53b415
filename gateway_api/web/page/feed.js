// The latest events, one per line. A button pauses them.

import {element} from './elements.js';
import {redraw} from './focus.js';
import {timeOfDay, words} from './format.js';
import {UP} from './messages.js';
import {button, panel} from './section.js';
import {link} from './views.js';

const HELD = 10;

/** The panel of the latest events. */
export function feed(stream) {
  let latest = [];
  const lines = element('ol', {id: 'feed', class: 'events'}), none = element('p', {class: 'note', text: 'No events yet.'});
  const pause = button('feed-pause', 'Pause', 'quiet', {'aria-pressed': 'false'});
  const draw = () => {
    if (pause.ariaPressed === 'true') return;
    none.hidden = latest.length > 0;
    redraw(lines, latest.map(line));
  };
  stream.addEventListener('events', ({detail}) => {
    latest = [...detail.slice(-HELD).reverse(), ...latest].slice(0, HELD);
    if (detail.length) draw();
  });
  pause.addEventListener('click', () => {
    pause.ariaPressed = String(pause.ariaPressed !== 'true');
    draw();
  });
  const made = panel('feed', 'Latest events', [lines, none]);
  made.querySelector('h2').append(pause);
  return made;
}

function line({name, data}) {
  const up = name === UP;
  const who = up
    ? element('a', {href: link('subscribers', {search: data.id, open: data.id}), class: 'who', text: data.username})
    : element('span', {class: 'who', text: data.username});
  return element('li', {class: up ? 'up' : 'down', 'data-key': `${name} ${data.id}`},
    element('span', {class: 'mark', text: up ? 'up' : 'down'}), who,
    element('span', {class: 'note', text: up ? [data.type, data.ip_address].filter(Boolean).join(', ') : words(data.reason)}),
    element('time', {text: timeOfDay(data.at)}));
}
