/**
 * The responses of an operation: its answers, and the refusals of its stages by status. What several
 * operations answer alike is said once, among the components.
 */
import { FAULTS, type FaultCode } from '../../core/faults.ts';
import { STATUS_CODES } from '../../core/node-http.ts';
import type {
  ResponseDescription,
  ContentDescription,
  JsonSchema,
  RouteDescription,
} from '../describe.ts';
import { takesIdempotencyKey } from '../idempotent.ts';
import type { Route } from '../route.ts';
import { type HeaderGroup, type HeaderReference, headerReferences } from './headers.ts';
import { byStatus, errorSchema, ownError, paysHere, refusalsOf, takesWallets } from './refusals.ts';
import type { Components } from './schemas.ts';

export interface OperationResponse {
  readonly description: string;
  readonly headers?: Readonly<Record<string, HeaderReference>>;
  readonly content?: OperationContent;
}

export interface OperationExample {
  readonly summary: string;
  readonly value: unknown;
}

/** Stands for a component of the document. */
export interface Reference {
  readonly $ref: string;
}

export type OperationContent = Readonly<
  Record<
    string,
    {
      readonly schema: JsonSchema;
      readonly example?: unknown;
      readonly examples?: Readonly<Record<string, OperationExample | Reference>>;
      /** What the `data:` of each event of a stream holds. */
      readonly 'x-event-schema'?: JsonSchema;
    }
  >
>;

export function contentOf(
  contents: readonly ContentDescription[],
  io: 'input' | 'output',
  components: Components,
): OperationContent {
  const entries = contents.map(({ type, schema, example, events }) => [
    type,
    {
      schema: components.schema(schema, io),
      ...(example === undefined ? {} : { example }),
      ...(events === undefined ? {} : { 'x-event-schema': components.schema(events, io) }),
    },
  ]);
  return Object.fromEntries(entries) as OperationContent; // built entry by entry above
}

export function responsesOf(
  route: Route,
  about: RouteDescription,
  components: Components,
): Record<string, OperationResponse> {
  const responses: Record<string, OperationResponse> = {};
  for (const answer of about.answers) {
    responses[String(answer.status)] = answerOf(route, answer, components);
  }
  for (const [status, codes] of byStatus(refusalsOf(route), about.refusalBody?.statuses)) {
    // Said by `x-pending-payment`.
    if (status === 202 && route.sells !== undefined) continue;
    // A 503 of /readyz is an answer, and what stages refuse comes beside it.
    const own = responses[String(status)];
    const refusal = refusalOf(route, status, codes, components);
    responses[String(status)] = own === undefined ? refusal : merged(own, refusal);
  }
  return responses;
}

function answerOf(
  route: Route,
  answer: ResponseDescription,
  components: Components,
): OperationResponse {
  const headers = {
    ...headerReferences([...(answer.headers ?? []), ...callerGroups(route)]),
    ...headerReferences(answer.someHeaders ?? [], 'sometimes'),
  };
  return {
    description: answer.about,
    ...(Object.keys(headers).length === 0 ? {} : { headers }),
    ...(answer.content === undefined
      ? {}
      : { content: contentOf(answer.content, 'output', components) }),
  };
}

/** Headers that follow from who calls and what is sold. */
function callerGroups(route: Route): HeaderGroup[] {
  const groups: HeaderGroup[] = route.auth === 'public' ? [] : ['balance', 'rate'];
  if (isRpc(route)) groups.push('id');
  if (takesWallets(route) || paysHere(route)) groups.push('payment');
  if (takesIdempotencyKey(route)) groups.push('replay');
  return groups;
}

export function refusalOf(
  route: Route,
  status: number,
  codes: readonly FaultCode[],
  components: Components,
): OperationResponse {
  const own = route.describe?.refusalBody;
  const headers = refusalHeaders(route, status);
  return {
    description: codes.map((code) => `\`${code}\`: ${FAULTS[code].message}`).join('\n\n'),
    ...(Object.keys(headers).length === 0 ? {} : { headers }),
    content: {
      'application/json': {
        schema:
          own === undefined
            ? errorSchema(route, codes)
            : ownError(route, status, components.schema(own.schema, 'output')),
        examples: examplesOf(route, codes),
      },
    },
  };
}

function isRpc({ describe }: Route): boolean {
  return describe?.answers.some(({ headers }) => headers?.includes('rpc') === true) === true;
}

function refusalHeaders(route: Route, status: number): Record<string, HeaderReference> {
  return {
    ...headerReferences([
      ...callerGroups(route),
      // How to pay is told to whoever came without credentials, wherever it asked.
      ...(status === 402 ? (['payment'] as const) : []),
      ...(status === 401 ? (['authenticate'] as const) : []),
      ...(status === 429 && isRpc(route) ? (['rpc-limit'] as const) : []),
      ...(status === 416 ? (['range', 'download'] as const) : []),
    ]),
  };
}

function merged(own: OperationResponse, refusal: OperationResponse): OperationResponse {
  const ownJson = own.content?.['application/json'];
  const otherJson = refusal.content?.['application/json'];
  const schema = { anyOf: [ownJson?.schema ?? {}, otherJson?.schema ?? {}] };
  return {
    description: `${own.description}\n\n${refusal.description}`,
    headers: { ...own.headers, ...refusal.headers },
    content: { ...refusal.content, ...own.content, 'application/json': { ...ownJson, schema } },
  };
}

/**
 * Every code in the form of most routes, said once for all of them. A protocol with a form of its own
 * shows one, and those that it has another word for: the others differ in nothing but their words.
 */
function examplesOf(
  route: Route,
  codes: readonly FaultCode[],
): Readonly<Record<string, OperationExample | Reference>> {
  const own = route.describe?.refusalBody;
  if (own === undefined) {
    const entries = codes.map((code) => [code, { $ref: `#/components/examples/${code}` }]);
    return Object.fromEntries(entries) as Record<string, Reference>; // one for each code
  }
  const examples: Record<string, OperationExample> = {};
  const shown = new Set<string>();
  for (const [at, code] of codes.entries()) {
    const { message, remedy } = FAULTS[code];
    const value = own.example(message, code);
    const text = JSON.stringify(value).replace(JSON.stringify(message), '');
    const isOwnWord = !text.toUpperCase().includes(`"${code}"`);
    if (at > 0 && (!isOwnWord || shown.has(text))) continue;
    shown.add(text);
    examples[code] = { summary: remedy, value };
  }
  return examples;
}

/** The examples that operations refer to. */
export function exampleComponents(routes: readonly Route[]): Record<string, OperationExample> {
  const common = routes.filter((route) => route.describe?.refusalBody === undefined);
  const entries = [...new Set(common.flatMap(refusalsOf))]
    .toSorted()
    .map((code): [FaultCode, OperationExample] => {
      const { message, remedy } = FAULTS[code];
      return [code, { summary: remedy, value: { error: message, code } }];
    });
  return Object.fromEntries(entries);
}

/** Reason phrases that name a response for people better than those of HTTP do. */
const RESPONSE_NAMES: Readonly<Record<string, string>> = {
  202: 'PaymentPending',
  422: 'UnprocessableContent',
};

/** Gathers the responses that several operations have: each of these becomes a component. */
export class SharedResponses {
  readonly #seen = new Map<string, { readonly response: OperationResponse; count: number }>();

  add(status: string, response: OperationResponse): void {
    const key = keyOf(status, response);
    const seen = this.#seen.get(key);
    if (seen === undefined) this.#seen.set(key, { response, count: 1 });
    else seen.count += 1;
  }

  /** The components, and what gives a reference for a response that is one. */
  components() {
    const names = new Map<string, string>();
    const components: Record<string, OperationResponse> = {};
    const taken = new Map<string, number>();
    for (const [key, { response, count }] of this.#seen) {
      if (count === 1) continue;
      const [status = ''] = key.split(' ', 1);
      const words = RESPONSE_NAMES[status] ?? STATUS_CODES[status] ?? status;
      const name = words.replaceAll(/[^A-Za-z]/g, '');
      const number = (taken.get(name) ?? 0) + 1;
      taken.set(name, number);
      const numbered = number === 1 ? name : `${name}${number}`;
      names.set(key, numbered);
      components[numbered] = response;
    }
    const referenced = (status: string, response: OperationResponse) => {
      const name = names.get(keyOf(status, response));
      return name === undefined ? response : { $ref: `#/components/responses/${name}` };
    };
    return { components, referenced };
  }
}

function keyOf(status: string, response: OperationResponse): string {
  return `${status} ${JSON.stringify(response)}`;
}
