/**
 * The bazaar extension of x402, for indexes of paid services: an example request and response of a route,
 * from the description that the OpenAPI document uses, with a model of this server. Built once for a route,
 * for its 402 and for the list for indexes.
 */
import { atOnce } from '../../core/event-loop.ts';
import { isJsonObject } from '../../json/json-scan.ts';
import type { ModelType } from '../../config/config.ts';
import type { ContentDescription, RouteDescription } from '../../http/describe.ts';
import { Components, named } from '../../http/openapi/schemas.ts';
import type { Route } from '../../http/route.ts';
import type { Discovered } from '../../payments/payments.ts';

type Json = Readonly<Record<string, unknown>>;

/** The id of the default model of a type, if there is one. */
export type DefaultModel = (type: ModelType) => string | undefined;

/** Model types of the routes whose requests contain a model. */
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
/** Schema without a response, for a header. */
const SLIM_SCHEMA: Json = {
  type: 'object',
  properties: { input: { type: 'object', required: ['type', 'method', 'bodyType', 'body'] } },
  required: ['input'],
};

interface Input {
  readonly bodyType: 'json' | 'form-data';
  readonly body: unknown;
  readonly schema: Json;
}

interface Output {
  readonly type: string;
  readonly example?: unknown;
}

interface Example {
  readonly input: Input;
  readonly output: Output | undefined;
  /** Type of the model in the example request, if it has one. */
  readonly modelType: ModelType | undefined;
}

export interface BazaarOptions {
  readonly basePath: string;
  readonly serviceName: string;
  readonly modelOf: DefaultModel;
}

export class Bazaar {
  readonly #options: BazaarOptions;
  readonly #examples = new WeakMap<Route, Example>();

  constructor(options: BazaarOptions) {
    this.#options = options;
  }

  /** The data of a paid route with these path parameters; `undefined` if the route has no request body. */
  of(route: Route, parameters: Readonly<Record<string, string>>): Discovered | undefined {
    const { describe, method } = route;
    const { basePath, serviceName } = this.#options;
    if (describe?.request === undefined) return undefined;
    let example = this.#examples.get(route);
    if (example === undefined) {
      example = atOnce(named(exampleOf(route, describe), serviceName));
      this.#examples.set(route, example);
    }
    const { input, output } = this.#withModel(example);
    const { bodyType, body } = input;
    const hasParameters = Object.keys(parameters).length > 0;
    const pathParams = hasParameters ? { pathParams: parameters } : {};
    const request = { type: 'http', method, bodyType, body, ...pathParams };
    const template = hasParameters ? { routeTemplate: basePath + route.path } : {};
    const info = { input: request, ...(output === undefined ? {} : { output }) };
    return {
      full: { info, schema: schemaOf(method, input, output !== undefined), ...template },
      slim: { info: { input: request }, schema: SLIM_SCHEMA, ...template },
    };
  }

  #withModel({ input, output, modelType }: Example): Pick<Example, 'input' | 'output'> {
    const model = modelType === undefined ? undefined : this.#options.modelOf(modelType);
    if (model === undefined) return { input, output };
    return {
      input: { ...input, body: withModel(input.body, model) },
      output: output && { ...output, example: withModel(output.example, model) },
    };
  }
}

function exampleOf({ sells = '' }: Route, { request = [], response }: RouteDescription): Example {
  const content = jsonOrFirst(request);
  const input = content === undefined ? NO_INPUT : inputOf(content);
  const hasModel = isJsonObject(input.body) && input.body['model'] !== undefined;
  const answer = jsonOrFirst([response].flat().find(({ status }) => status < 300)?.content ?? []);
  return {
    input,
    output: answer === undefined ? undefined : outputOf(answer),
    modelType: hasModel ? MODEL_TYPE[sells] : undefined,
  };
}

function jsonOrFirst(contents: readonly ContentDescription[]): ContentDescription | undefined {
  return contents.find(({ type }) => type === 'application/json') ?? contents[0];
}

const NO_INPUT: Input = { bodyType: 'json', body: {}, schema: { type: 'object' } };

/** The members of the example with their types; the whole schema would be larger than a header. */
function inputOf({ type, schema, example }: ContentDescription): Input {
  const whole = resolved(schema);
  const properties = isJsonObject(whole['properties']) ? whole['properties'] : {};
  const required = Array.isArray(whole['required']) ? whole['required'].map(String) : [];
  const bodyType = type === 'multipart/form-data' ? 'form-data' : 'json';
  const body = example ?? Object.fromEntries(required.map((name) => [name, FILE]));
  if (!isJsonObject(body) || Object.keys(properties).length === 0) {
    return { bodyType, body, schema: {} };
  }
  const types = Object.keys(body).map((name) => [name, typeOf(properties[name])]);
  return {
    bodyType,
    body,
    schema: {
      type: 'object',
      required: required.filter((name) => body[name] !== undefined),
      properties: Object.fromEntries(types) as Json,
    },
  };
}

function outputOf({ type, example }: ContentDescription): Output {
  return type === 'application/json' && isJsonObject(example)
    ? { type: 'json', example }
    : { type: type.replace('application/json', 'json') };
}

/** The schema of a content, without a reference to a component. */
function resolved(schema: ContentDescription['schema']): Json {
  const components = new Components();
  const json = components.schema(schema, 'input');
  const name = typeof json['$ref'] === 'string' ? json['$ref'].split('/').at(-1) : undefined;
  return name === undefined ? json : (components.all()[name] ?? {});
}

function typeOf(property: unknown): Json {
  const type = isJsonObject(property) ? property['type'] : undefined;
  return type === undefined ? {} : { type };
}

function schemaOf(method: string, { bodyType, schema }: Input, hasOutput: boolean): Json {
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

function withModel(example: unknown, model: string): unknown {
  return isJsonObject(example) && example['model'] !== undefined ? { ...example, model } : example;
}
