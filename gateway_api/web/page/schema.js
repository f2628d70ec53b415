// Help for the paths of the configuration, from the OpenAPI document.

import {isLeaf, keyOf, parts, pathText} from './leaves.js';

const SEGMENT = /"[^"]*"|[^.]+/g;
const KINDS = {string: 'Text', integer: 'Whole number', boolean: 'true or false', array: 'List, as JSON', object: 'Section'};
const NONE = {meaning: '', kind: ''};

export class Schema {
  // One for the page: the document is large.
  static #schemas = null;
  #api;

  constructor(api) {
    this.#api = api;
  }

  /** The schema of a field in the body of a request. */
  async field(body, name) {
    return (await this.#all())[body].properties[name];
  }

  /** What a path means, and which values it takes, as sentences; empty for an unknown path. */
  async help(path) {
    const schemas = await this.#all();
    let schema = schemas.Configuration;
    for (const segment of path.match(SEGMENT) ?? []) schema = resolved(schemas, schema?.properties?.[segment] ?? schema?.items);
    return schema ? {meaning: meaning(schema), kind: kind(schema)} : NONE;
  }

  /** All paths of a configuration: those that it leaves out, too. */
  async paths(configuration) {
    const schemas = await this.#all();
    return [...known(schemas, schemas.Configuration, configuration, [])].map(pathText);
  }

  async #all() {
    Schema.#schemas ??= (await this.#api.document('openapi.json')).components.schemas;
    return Schema.#schemas;
  }
}

/** A schema with what it refers to. `nullable` tells whether null is a value, too. */
function resolved(schemas, schema) {
  const choice = schema?.anyOf?.find(({type}) => type !== 'null');
  const name = (choice ?? schema)?.$ref?.split('/').at(-1);
  return schema && {...schemas[name], ...choice, ...schema, nullable: choice !== undefined};
}

/** The paths that a schema allows, as segments; of a list, those of the items that it has. */
function* known(schemas, schema, value, path) {
  const {properties, items} = resolved(schemas, schema);
  if (properties) {
    for (const [name, field] of Object.entries(properties)) yield* known(schemas, field, value?.[name], [...path, name]);
  } else if (Array.isArray(value) && !isLeaf(value)) {
    const {[keyOf(value)]: key, ...fields} = resolved(schemas, items).properties;
    for (const [name, item] of parts(value)) yield* known(schemas, {properties: fields}, item, [...path, name]);
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
