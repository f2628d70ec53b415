// The archive: the latest revisions.

import {byId, element, show} from './elements.js';
import {moment} from './format.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';

const SECONDS = 30, SHOWN = 10;

export class Archive {
  constructor(api) {
    this.poll = new Poll(SECONDS, () => shown('archive-problem', async () => {
      const {revisions} = await api.poll('/system/config/archive');
      show('archive-none', !revisions.length);
      show('archive-table', revisions.length > 0);
      byId('archive').replaceChildren(...revisions.slice(0, SHOWN).map(row));
    }), ['configuration']);
  }

  now() {
    this.poll.now();
  }
}

function row({revision, committed_at: at, author, comment}) {
  return element('tr', {}, element('td', {class: 'number', text: revision}), element('td', {text: moment(at)}),
    element('td', {text: author}), element('td', {class: 'text', text: comment ?? ''}));
}
