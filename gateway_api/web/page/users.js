// The users of the running configuration. Edits of a user are changes of the candidate, as any other edit.

import {MAX_BYTES, hash} from './bcrypt.js';
import {attempt, confirm} from './dialogs.js';
import {byId, complain, element, write} from './elements.js';
import {count} from './format.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';
import {field as schema, whenRead} from './schema.js';
import {ADMIN, field, form, offer, panel, textInput, viewSection} from './section.js';
import {Table} from './table.js';
import {toast} from './toasts.js';

const SECONDS = 10;
// The role with the least rights.
const LEAST = 'operator';
const SECRET = {type: 'password', required: true, autocomplete: 'new-password'};

export class Users {
  constructor(api) {
    this.api = api;
    this.table = new Table({id: 'user-list', label: 'Users', key: ({username}) => username, columns: [
      {field: 'username', title: 'Username'}, {field: 'role', title: 'Role'},
      {field: 'actions', title: 'Actions', look: 'text', show: user => this.#actions(user)},
    ]});
    viewSection('users', 'Users', panel('users', 'Users of the API', [this.table.place]),
      panel('new-user', 'Add a user', [this.#form()], ADMIN));
    this.poll = new Poll(SECONDS, () => this.#read(), ['users']);
  }

  #form() {
    const roles = element('select', {id: 'new-role'}), draw = known => offer(roles, [...new Set([LEAST, ...known])], LEAST);
    draw([]);
    whenRead(this.api, 'users', openapi => draw(schema(openapi, 'ConfiguredUser', 'role').enum), 'new-user-problem');
    return form('add-user', [
      field('New username', textInput('new-username', {required: true})),
      field('Role', roles),
      field('Password', textInput('new-password', SECRET)), field('The password again', textInput('new-password-again', SECRET)),
      element('p', {class: 'note', text: 'This page makes the bcrypt hash. The password does not leave the browser.'}),
    ], 'Stage', () => this.#add());
  }

  async #read() {
    await shown('users-problem', async () => {
      const {api: {users = []} = {}} = await this.api.poll('/system/config');
      write('users-note', count(users.length));
      this.table.draw(users);
    });
  }

  #actions({username, role}) {
    if (!this.api.isAdmin && username !== this.api.user?.username) return '';
    const other = role === 'admin' ? LEAST : 'admin', path = `api.users.${JSON.stringify(username)}`;
    const button = (text, label, act) => element('button', {type: 'button', class: 'quiet', text, 'aria-label': `${label} ${username}`, onclick: act});
    const end = button('End tokens…', 'End the tokens of', () => this.#end(username));
    if (!this.api.isAdmin) return end;
    return element('span', {class: 'actions'}, end,
      button(`Make ${other}`, `Make ${other}:`, () => this.#stage('set', {path: `${path}.role`, value: other})),
      button('Remove', 'Remove', () => this.#stage('delete', {path})));
  }

  #end(username) {
    confirm({title: `End all tokens of ${username}?`, text: `Each page and script of ${username} must log in again.`, button: 'End tokens'}, async () => {
      toast((await this.api.post('/auth/logout-everywhere', {username})).message);
    });
  }

  async #stage(action, body) {
    await shown('users-problem', async () => {
      await this.api.post(`/system/config/${action}`, body);
      toast(`Staged ${body.path}. Commit it in the view Configuration.`);
    });
  }

  async #add() {
    const password = byId('new-password').value;
    const problem = password !== byId('new-password-again').value ? 'The two passwords are not the same.'
      : new TextEncoder().encode(password).length > MAX_BYTES ? `A password must have at most ${MAX_BYTES} bytes.` : '';
    complain(byId('add-user-problem'), problem);
    if (problem) return;
    await attempt(byId('add-user'), byId('add-user-problem'), async () => {
      const user = {username: byId('new-username').value, role: byId('new-role').value, password_hash: await hash(password)};
      // Behind the users of the candidate: a number of the running configuration may be that of one who waits for a commit.
      const {data: {api: {users}}, etag} = await this.api.ask('GET', '/system/config/candidate');
      await this.api.post('/system/config/set', {path: `api.users.${users.length}`, value: user}, {headers: {'If-Match': etag}});
      byId('add-user').reset();
      toast(`Staged the user ${user.username}. Commit it in the view Configuration.`);
    });
  }
}
