// Entry point: connects the parts of the page.

import {Api} from './api.js';
import {audit} from './audit.js';
import {Configuration} from './configuration.js';
import {Connection} from './connection.js';
import {confirm} from './dialogs.js';
import {byId, show, write} from './elements.js';
import {failedSignOns} from './failedsignons.js';
import {formerSessions} from './formersessions.js';
import {faults} from './health.js';
import {Jobs} from './jobs.js';
import * as keys from './keys.js';
import {cgnat, interfaces, routes} from './network.js';
import {overview} from './overview.js';
import * as polls from './poll.js';
import {drop} from './section.js';
import {SignIn} from './signin.js';
import {Stream} from './stream.js';
import {Subscribers} from './subscribers.js';
import {talkers} from './talkers.js';
import {Users} from './users.js';
import * as views from './views.js';
import {Webhooks} from './webhooks.js';

const api = new Api();
const stream = new Stream(api);

/** After the first sign-in. */
function begin() {
  new Connection(api, stream);
  overview(api, stream);
  new Jobs(api);
  new Users(api);
  keys.listen();
  views.follow({
    subscribers: new Subscribers(api, stream), traffic: talkers(api), history: formerSessions(api), 'failed-sign-ons': failedSignOns(api),
    interfaces: interfaces(api), routes: routes(api), cgnat: cgnat(api), configuration: new Configuration(api), health: faults(api),
    webhooks: new Webhooks(api), audit: audit(api),
  });
  show('banner', true);
}

let begun = false, signedIn = null;
const signIn = new SignIn(api, () => {
  if (!begun) begin();
  begun = true;
  const {username, role} = api.user;
  // A dialog of the former user must not act for the new one.
  if (username !== signedIn) {
    for (const dialog of document.querySelectorAll('dialog[open]:not(#sign-in)')) dialog.close();
  }
  signedIn = username;
  write('who', username === role ? username : `${username} · ${role}`);
  for (const control of document.querySelectorAll('[data-admin]')) control.hidden = !api.isAdmin;
  polls.run(true);
  stream.start();
});

api.addEventListener('expired', () => {
  polls.run(false);
  stream.stop();
});

// Before the button's own act: then a dialog leads back to the button of the menu.
byId('account-menu').addEventListener('click', () => byId('account-menu').hidePopover(), {capture: true});
drop(byId('account'), byId('account-menu'));

byId('sign-out').addEventListener('click', async () => {
  try {
    await api.signOut();
  } finally {
    // Removes all data from the page.
    location.reload();
  }
});

byId('sign-out-everywhere').addEventListener('click', () => confirm({
  title: 'Log out everywhere?', button: 'Log out everywhere',
  text: 'This ends all tokens of your user, also on other machines and in scripts. Each must log in again.',
}, async () => {
  await api.signOutEverywhere();
  location.reload();
}));

signIn.start();
