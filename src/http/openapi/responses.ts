/** Responses of an operation: its own, and error responses by status as shared components. */
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
      /** Schema of `data:` in each event of a stream. */
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
  return Object.fromEntries(entries) as OperationContent; // built from the entries above
}

export function responsesOf(
  route: Route,
  about: RouteDescription,
  components: Components,
  shared: SharedResponses,
): Record<string, OperationResponse | Reference> {
  const own = new Map(
    [about.response].flat().map((one) => [one.status, describedResponse(route, one, components)]),
  );
  const responses = [...own].map(([status, response]) => [status, response] as const);
  const errors = byStatus(refusalsOf(route), about.refusalBody?.statuses)
    // The 202 of a priced route is in `x-pending-payment`.
    .filter(([status]) => status !== 202 || route.sells === undefined)
    .map(([status, codes]) => {
      const error = refusalOf(route, status, codes, components);
      // A status can be a result and an error, for example the 503 of /readyz.
      const result = own.get(status);
      return [status, shared.refer(status, result ? merged(result, error) : error)] as const;
    });
  return Object.fromEntries([...responses, ...errors]);
}

function describedResponse(
  route: Route,
  { about, headers = [], someHeaders = [], content }: ResponseDescription,
  components: Components,
): OperationResponse {
  return {
    description: about,
    ...headersOf({
      ...headerReferences([...headers, ...callerGroups(route)]),
      ...headerReferences(someHeaders, 'sometimes'),
    }),
    ...(content && { content: contentOf(content, 'output', components) }),
  };
}

function headersOf(headers: Record<string, HeaderReference>) {
  return Object.keys(headers).length === 0 ? {} : { headers };
}

/** Headers that depend on the authentication and the price of the route. */
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
  return {
    description: codes.map((code) => `\`${code}\`: ${FAULTS[code].message}`).join('\n\n'),
    ...headersOf(refusalHeaders(route, status)),
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
  return [describe?.response ?? []].flat().some(({ headers }) => headers?.includes('rpc') === true);
}

function refusalHeaders(route: Route, status: number): Record<string, HeaderReference> {
  const groups = callerGroups(route);
  // Every route sends payment options to callers without credentials.
  if (status === 402) groups.push('payment');
  if (status === 401) groups.push('authenticate');
  if (status === 429 && isRpc(route)) groups.push('rpc-limit');
  if (status === 416) groups.push('range', 'download');
  return headerReferences(groups);
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
 * Returns an example for each code. Routes with the standard format share them. Routes with their own format
 * have one example, and one for each code that their format shows in a different way.
 */
function examplesOf(
  route: Route,
  codes: readonly FaultCode[],
): Readonly<Record<string, OperationExample | Reference>> {
  const own = route.describe?.refusalBody;
  if (own === undefined) {
    const entries = codes.map((code) => [code, { $ref: `#/components/examples/${code}` }]);
    return Object.fromEntries(entries) as Record<string, Reference>; // has one entry per code
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

/** Returns the shared examples. */
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

/** Names of components for which the HTTP reason phrase is misleading. */
const RESPONSE_NAMES: Readonly<Record<number, string>> = {
  202: 'PaymentPending',
  422: 'UnprocessableContent',
};

/** Collects error responses as components without duplicates. */
export class SharedResponses {
  readonly all: Record<string, OperationResponse> = {};
  readonly #names = new Map<string, string>();

  /** Returns a reference named after the status, with a number from the second component on. */
  refer(status: number, response: OperationResponse): Reference {
    const key = `${status} ${JSON.stringify(response)}`;
    const words = RESPONSE_NAMES[status] ?? STATUS_CODES[status] ?? String(status);
    const plain = words.replaceAll(/[^A-Za-z]/g, '');
    let name = this.#names.get(key) ?? plain;
    for (let number = 2; !this.#names.has(key); number += 1) {
      if (this.all[name] === undefined) this.#names.set(key, name);
      else name = `${plain}${number}`;
    }
    this.all[name] = response;
    return { $ref: `#/components/responses/${name}` };
  }
}
