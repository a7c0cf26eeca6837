/**
 * What an index of paid services needs to know of a route (the bazaar extension of x402): how it is
 * asked and what it answers, out of the same descriptions as the OpenAPI document, with a model that
 * this server has. Made once for a route; it goes into its 402 and into the list for indexes.
 */
import { atOnce } from '../../core/event-loop.ts';
import { isJsonObject } from '../../json/json-scan.ts';
import type { ModelType } from '../../config/config.ts';
import type { ContentDescription, RouteDescription } from '../../http/describe.ts';
import { Components, named } from '../../http/openapi/schemas.ts';
import type { Route } from '../../http/route.ts';
import type { Discovered } from '../../payments/payments.ts';

type Json = Readonly<Record<string, unknown>>;

/** The id of the default model of a type; `undefined` where there is none. */
export type DefaultModel = (type: ModelType) => string | undefined;

/** The models of what routes sell; the others name none. */
const MODEL_TYPE: Readonly<Record<string, ModelType>> = {
  chat: 'text',
  completions: 'text',
  embeddings: 'embedding',
  image: 'image',
  moderation: 'moderation',
  rerank: 'rerank',
  speech: 'tts',
  transcription: 'asr',
  video: 'video',
};
const DIALECT = 'https://json-schema.org/draft/2020-12/schema';
const FILE = '@file';
/** Of a request alone, for a header. */
const SLIM_SCHEMA: Json = {
  type: 'object',
  properties: { input: { type: 'object', required: ['type', 'method', 'bodyType', 'body'] } },
  required: ['input'],
};

interface Asked {
  readonly bodyType: 'json' | 'form-data';
  readonly body: unknown;
  readonly schema: Json;
}

interface Answered {
  readonly type: string;
  readonly example?: unknown;
}

interface Made {
  readonly asked: Asked;
  readonly answered: Answered | undefined;
  /** Of its example; missing where it names none. */
  readonly modelType: ModelType | undefined;
}

export interface BazaarOptions {
  readonly basePath: string;
  readonly serviceName: string;
  readonly modelOf: DefaultModel;
}

export class Bazaar {
  readonly #options: BazaarOptions;
  readonly #made = new WeakMap<Route, Made>();

  constructor(options: BazaarOptions) {
    this.#options = options;
  }

  /** The data of a route that sells something, asked with these parameters of its path. */
  of(route: Route, parameters: Readonly<Record<string, string>>): Discovered | undefined {
    const { describe, method } = route;
    const { basePath, serviceName } = this.#options;
    if (describe?.request === undefined) return undefined;
    let made = this.#made.get(route);
    if (made === undefined)
      this.#made.set(route, (made = atOnce(named(makeOf(route, describe), serviceName))));
    const { asked, answered } = this.#withModel(made);
    const hasParameters = Object.keys(parameters).length > 0;
    const input = {
      type: 'http',
      method,
      bodyType: asked.bodyType,
      body: asked.body,
      ...(hasParameters ? { pathParams: parameters } : {}),
    };
    const template = hasParameters ? { routeTemplate: basePath + route.path } : {};
    const info = { input, ...(answered === undefined ? {} : { output: answered }) };
    return {
      full: { info, schema: schemaOf(method, asked, answered !== undefined), ...template },
      slim: { info: { input }, schema: SLIM_SCHEMA, ...template },
    };
  }

  #withModel({ asked, answered, modelType }: Made): Pick<Made, 'asked' | 'answered'> {
    const model = modelType === undefined ? undefined : this.#options.modelOf(modelType);
    if (model === undefined) return { asked, answered };
    return {
      asked: { ...asked, body: modelled(asked.body, model) },
      answered: answered && { ...answered, example: modelled(answered.example, model) },
    };
  }
}

function makeOf({ sells = '' }: Route, { request = [], response }: RouteDescription): Made {
  const json = request.find(({ type }) => type === 'application/json');
  const content = json ?? request[0];
  const asked = content === undefined ? NOTHING : askedOf(content);
  const names = isJsonObject(asked.body) && asked.body['model'] !== undefined;
  const told = [response].flat().find(({ status }) => status < 300)?.content ?? [];
  const answer = told.find(({ type }) => type === 'application/json') ?? told[0];
  return {
    asked,
    answered: answer === undefined ? undefined : answeredOf(answer),
    modelType: names ? MODEL_TYPE[sells] : undefined,
  };
}

const NOTHING: Asked = { bodyType: 'json', body: {}, schema: { type: 'object' } };

/** The members of the example with their types: the whole schema is larger than a header. */
function askedOf({ type, schema, example }: ContentDescription): Asked {
  const whole = resolved(schema);
  const properties = isJsonObject(whole['properties']) ? whole['properties'] : {};
  const required = Array.isArray(whole['required']) ? whole['required'].map(String) : [];
  const bodyType = type === 'multipart/form-data' ? 'form-data' : 'json';
  const body = example ?? Object.fromEntries(required.map((name) => [name, FILE]));
  if (!isJsonObject(body) || Object.keys(properties).length === 0) {
    return { bodyType, body, schema: {} };
  }
  const named = Object.keys(body).map((name) => [name, typeOf(properties[name])]);
  return {
    bodyType,
    body,
    schema: {
      type: 'object',
      required: required.filter((name) => body[name] !== undefined),
      properties: Object.fromEntries(named) as Json,
    },
  };
}

function answeredOf({ type, example }: ContentDescription): Answered {
  return type === 'application/json' && isJsonObject(example)
    ? { type: 'json', example }
    : { type: type.replace('application/json', 'json') };
}

/** The schema of a content, itself where it is a component. */
function resolved(schema: ContentDescription['schema']): Json {
  const components = new Components();
  const made = components.schema(schema, 'input');
  const name = typeof made['$ref'] === 'string' ? made['$ref'].split('/').at(-1) : undefined;
  return name === undefined ? made : (components.all()[name] ?? {});
}

function typeOf(property: unknown): Json {
  const type = isJsonObject(property) ? property['type'] : undefined;
  return type === undefined ? {} : { type };
}

function schemaOf(method: string, { bodyType, schema }: Asked, hasOutput: boolean): Json {
  return {
    $schema: DIALECT,
    type: 'object',
    properties: {
      input: {
        type: 'object',
        properties: {
          type: { const: 'http' },
          method: { enum: [method] },
          bodyType: { enum: [bodyType] },
          body: schema,
          pathParams: { type: 'object' },
        },
        required: ['type', 'method', 'bodyType', 'body'],
        additionalProperties: false,
      },
      ...(hasOutput ? { output: { type: 'object', required: ['type'] } } : {}),
    },
    required: ['input'],
  };
}

function modelled(example: unknown, model: string): unknown {
  return isJsonObject(example) && example['model'] !== undefined ? { ...example, model } : example;
}
