/** How a route is called, by what the document says of it: the facts for the browser, and as code. */
import type { OpenApiDocument, OperationParameter, WholeOperation } from '../openapi/openapi.ts';
import type { JsonSchema } from '../describe.ts';
import { resolve } from './fields.ts';
import {
  type Credential,
  type FormField,
  type Sample,
  type SampleBody,
  type SampleRequest,
  samplesOf,
  sdkMethod,
} from './samples.ts';
import type { TryBody, TryFacts, TryField, TryParameter } from './try-facts.ts';

export interface PageOperation {
  readonly method: string;
  readonly path: string;
  readonly operation: WholeOperation;
  /** Address of the path, with the base path where it belongs. */
  readonly url: string;
}

/** Choices that are offered as a list. */
const MAX_VALUES = 24;

const SCHEMES: Readonly<Record<string, TryFacts['credential']>> = {
  apiKey: 'key',
  adminKey: 'admin',
  wallet: 'wallet',
};

/** What a caller proves itself with; the first of several is the usual one. */
function credentialOf({ security, parameters = [] }: WholeOperation): TryFacts['credential'] {
  const [scheme] = Object.keys(security?.[0] ?? {});
  if (scheme !== undefined) return SCHEMES[scheme] ?? 'none';
  // Its payment is its credential, and a wallet signs that.
  return parameters.some(({ name }) => name === 'PAYMENT-SIGNATURE') ? 'wallet' : 'none';
}

export function tryFacts(one: PageOperation, document: OpenApiDocument): TryFacts {
  const { method, operation, url } = one;
  const credential = credentialOf(operation);
  const parameters = (operation.parameters ?? []).map((parameter) => tryParameter(parameter));
  const bodies = Object.entries(operation.requestBody?.content ?? {});
  return {
    method: method.toUpperCase(),
    path: decodeURI(new URL(url).pathname),
    credential,
    isPaid: takesMoney(operation),
    isDestructive: operation['x-destructive'] === true,
    parameters,
    bodies: bodies.map(([type, { schema, example }]): TryBody => {
      if (type === 'application/json')
        return { type, text: JSON.stringify(example ?? {}, null, 2) };
      if (type.startsWith('multipart/')) {
        return { type, fields: formFields(schema, document, one.path, example) };
      }
      return { type };
    }),
  };
}

/** Whether a success is charged: the document says so by the refusal of an empty balance. */
function takesMoney(operation: WholeOperation): boolean {
  const refusals = operation.responses['402']?.content?.['application/json']?.examples ?? {};
  return 'INSUFFICIENT_BALANCE' in refusals;
}

function tryParameter({ name, in: place, required, example, schema }: OperationParameter) {
  const values = valuesOf(schema);
  return {
    name,
    in: place,
    required,
    ...(example === undefined ? {} : { example }),
    ...(values === undefined ? {} : { values }),
  } satisfies TryParameter;
}

function valuesOf(schema: JsonSchema): readonly string[] | undefined {
  const { enum: values, const: only } = schema;
  if (typeof only === 'string') return [only];
  if (!Array.isArray(values) || values.length > MAX_VALUES) return undefined;
  return values.map(String);
}

/** Names of files that fit what a field of this name takes. */
const FILES: Readonly<Record<string, string>> = { image: 'photo.png', mask: 'mask.png' };

/** What stands in fields that have no example. */
const USUAL: Readonly<Record<string, string>> = {
  model: 'default',
  prompt: 'A lighthouse at dawn',
};

function formFields(
  given: JsonSchema,
  { components }: OpenApiDocument,
  path: string,
  example: unknown,
): TryField[] {
  const { properties = {}, required = [] } = resolve(given, components);
  const examples = (example ?? {}) as Readonly<Record<string, string>>; // of a form: its fields
  return Object.entries(properties).map(([name, member]) => {
    const schema = resolve(member, components);
    const isFile = isFileSchema(schema);
    const values = valuesOf(schema as JsonSchema); // the same, by fewer members
    const isNeeded = required.includes(name) || name === 'model';
    const usual = examples[name] ?? (isNeeded ? (USUAL[name] ?? values?.[0]) : undefined);
    const fallback = path.startsWith('/audio') ? 'speech.mp3' : 'requests.jsonl';
    const value = isFile ? (FILES[name] ?? fallback) : usual;
    return {
      name,
      required: required.includes(name),
      isFile,
      ...(value === undefined ? {} : { value }),
      ...(values === undefined ? {} : { values }),
    };
  });
}

/** Bytes, alone, as a list of files, or either. */
function isFileSchema(schema: object): boolean {
  const { contentMediaType, format, items, anyOf } = schema as Readonly<Record<string, unknown>>; // JSON Schema
  if (contentMediaType !== undefined || format === 'binary') return true;
  if (Array.isArray(anyOf)) return anyOf.some((one: object) => isFileSchema(one));
  return typeof items === 'object' && items !== null && isFileSchema(items);
}

const CREDENTIALS: Readonly<Record<TryFacts['credential'], Credential | undefined>> = {
  none: undefined,
  key: 'API_KEY',
  admin: 'ADMIN_KEY',
  wallet: 'SIGN_IN',
};

/** The route as code, by what the page says of it. */
export function samplesFor(
  one: PageOperation,
  facts: TryFacts,
  baseUrl: string,
): readonly Sample[] {
  const { method, path, url, operation } = one;
  const needed = facts.parameters.filter((parameter) => parameter.required);
  const valueOf = ({ name, example }: TryParameter): string => example ?? name;
  const inPath = needed.filter((parameter) => parameter.in === 'path');
  const target = inPath.reduce((text, each) => text.replace(`{${each.name}}`, valueOf(each)), url);
  const query = needed
    .filter((parameter) => parameter.in === 'query')
    .map((parameter) => `${parameter.name}=${encodeURIComponent(valueOf(parameter))}`);
  const sdk = url.startsWith(baseUrl) ? sdkMethod(method.toUpperCase(), path) : undefined;
  const isPublic = Object.keys(operation.security?.[0] ?? {}).length === 0;
  const request: SampleRequest = {
    method: method.toUpperCase(),
    url: query.length === 0 ? target : `${target}?${query.join('&')}`,
    // Where nobody signs in, the payment is what is signed, and the first request goes without.
    credential: isPublic ? undefined : CREDENTIALS[facts.credential],
    isRefusedFirst: isPublic && facts.credential === 'wallet',
    body: sampleBody(operation, facts),
    answer: answerOf(method, operation),
    sdk: sdk && { baseUrl, method: sdk, ids: inPath.map(valueOf) },
  };
  return samplesOf(request);
}

/** In the form that the route describes first. */
function sampleBody(operation: WholeOperation, facts: TryFacts): SampleBody | undefined {
  const [given] = Object.entries(operation.requestBody?.content ?? {});
  if (given?.[0] === 'application/json') return { kind: 'json', value: given[1].example ?? {} };
  const form = facts.bodies[0]?.fields;
  if (form === undefined) return undefined;
  const fields = form
    .filter(({ required, name }) => required || name === 'model')
    .map(({ name, value, values, isFile }): FormField => {
      return { name, value: value ?? values?.[0] ?? name, isFile };
    });
  return { kind: 'form', fields };
}

const ENDINGS: Readonly<Record<string, string>> = {
  'image/png': 'answer.png',
  'image/svg+xml': 'answer.svg',
  'audio/mpeg': 'speech.mp3',
  'video/mp4': 'video.mp4',
};

function answerOf(method: string, operation: WholeOperation): SampleRequest['answer'] {
  if (method === 'head') return 'nothing';
  const [response] = Object.values(operation.responses);
  const [type = ''] = Object.keys(response?.content ?? {});
  if (type === 'text/event-stream') return 'events';
  if (/^(?:image|audio|video)\//.test(type) || type === 'application/octet-stream') {
    return { file: ENDINGS[type] ?? 'answer.bin' };
  }
  return type === 'application/json' ? undefined : 'text';
}
