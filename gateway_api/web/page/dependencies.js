// The health of what the gateway depends on.

import {byId, element, stateRow, write} from './elements.js';
import {words} from './format.js';
import {panel} from './section.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';

const SECONDS = 10;
const WELL = ['ok', 'unused'];

export const dependenciesPanel = () => panel('dependencies', 'Dependencies', [element('ul', {id: 'dependency-states', class: 'states'})]);

export class Dependencies {
  constructor(api) {
    new Poll(SECONDS, () => shown('dependencies-problem', async () => {
      const {state, dependencies} = await api.poll('/system/health/detail');
      write('dependencies-note', state);
      byId('dependency-states').replaceChildren(...dependencies.map(({name, state: one, message}) =>
        stateRow(words(name), WELL.includes(one), one, message)));
    }), ['health']);
  }
}
