// The OpenAPI document of the gateway: the values that a parameter or field takes, and help for the paths of the configuration.

import {ROOT} from './api.js';
import {isLeaf, parts, pathText} from './leaves.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';

// Seconds until the next attempt.
const PAUSE = 10;

const SEGMENT = /"[^"]*"|[^.]+/g;
const KINDS = {string: 'Text', integer: 'Whole number', boolean: 'true or false', array: 'List, as JSON', object: 'Section'};
export const NONE = {meaning: '', kind: '', isRate: false};

let asked = null;

/** The document. It is large: the page reads it once, and not before a view needs it. After a failure, the next call reads
    again. */
export function documentOf(api) {
  asked ??= api.document('openapi.json').catch(error => {
    asked = null;
    throw error;
  });
  return asked;
}

/** Calls `fill` with the document when a view appears. If it cannot be read, the elements `ids` say so, and the page tries
    again. Until then the view lacks what `fill` adds. */
export function whenRead(api, view, fill, ids = []) {
  new Poll(PAUSE, () => shown(ids, async () => fill(await documentOf(api))), [view]);
}

/** The values that a parameter of a list takes. */
export const choices = ({paths}, path, name) => paths[ROOT + path].get.parameters.find(one => one.name === name).schema.enum;

/** The schema of a field. */
export const field = ({components: {schemas}}, record, name) => resolved(schemas, schemas[record].properties[name]);

/** What a path means, and which values it takes, as sentences; empty for an unknown path. `isRate` is true for a rate. */
export function help({components: {schemas}}, path) {
  let schema = schemas.GatewayConfiguration;
  for (const segment of path.match(SEGMENT) ?? []) schema = resolved(schemas, schema?.properties?.[segment] ?? schema?.items);
  return schema ? {meaning: meaning(schema), kind: kind(schema), isRate: schema['x-unit'] === 'bit/s'} : NONE;
}

/** The fields by which lists of the configuration name their items. None if the document cannot be read: paths have indexes. */
export const listKeys = api => documentOf(api).then(({components: {schemas}}) => [...new Set(
  Object.values(schemas).flatMap(({properties = {}}) => Object.values(properties).flatMap(({'x-key': key}) => key ?? [])),
)], () => []);

/** All paths of a configuration: those that it leaves out, too. */
export function allPaths({components: {schemas}}, configuration) {
  return [...known(schemas, schemas.GatewayConfiguration, configuration, [])].map(pathText);
}

/** A schema with what it refers to. `nullable` tells whether null is a value, too. */
function resolved(schemas, schema) {
  const choice = schema?.anyOf?.find(({type}) => type !== 'null');
  const name = (choice ?? schema)?.$ref?.split('/').at(-1);
  return schema && {...schemas[name], ...choice, ...schema, nullable: choice !== undefined};
}

/** The paths that a schema allows, as segments; of a list, those of the items that it has. */
function* known(schemas, schema, value, path) {
  const {properties, items, 'x-key': key} = resolved(schemas, schema);
  if (properties) {
    for (const [name, field] of Object.entries(properties)) yield* known(schemas, field, value?.[name], [...path, name]);
  } else if (key && Array.isArray(value) && !isLeaf(value)) {
    const {[key]: _, ...fields} = resolved(schemas, items).properties;
    for (const [name, item] of parts(value, [key])) yield* known(schemas, {properties: fields}, item, [...path, name]);
  } else {
    yield path;
  }
}

function meaning({description = '', examples: [example] = []}) {
  return example === undefined || example === null ? description : `${description} Example: ${text(example)}`;
}

function kind({type, enum: choices, minimum, maximum, maxItems: most, nullable}) {
  const name = choices ? `One of ${choices.join(', ')}` : KINDS[type];
  const range = minimum === undefined ? '' : `, ${minimum} to ${maximum}`;
  return `${name}${range}${most ? `, at most ${most} items` : ''}${nullable ? ', or null' : ''}.`;
}

const text = value => (typeof value === 'string' ? value : JSON.stringify(value));
