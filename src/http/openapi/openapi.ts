/**
 * The OpenAPI 3.1 document of the running server, made by walking its routes: schemas are those
 * that validate, statuses are those that stages and routes can answer with.
 *
 * Invariant: every route is in it. It knows nothing of what routes do.
 */
import { z } from 'zod';
import { FAULTS, type FaultCode } from '../../core/faults.ts';
import type {
  AnswerDescription,
  ContentDescription,
  JsonSchema,
  ParameterDescription,
  RouteDescription,
} from '../describe.ts';
import { TAGS } from '../describe.ts';
import { takesIdempotencyKey } from '../idempotent.ts';
import type { Route, RouteAuth } from '../route.ts';
import { HEADER_GROUPS } from './headers.ts';
import { ERROR_SCHEMAS } from './error-schemas.ts';
import { byStatus, errorSchema, ownError, paysHere, refusalsOf, takesWallets } from './refusals.ts';
import { Components, named } from './schemas.ts';

export { HEADER_GROUPS, PROTOCOL_HEADERS } from './headers.ts';

export interface OpenApiOptions {
  readonly serviceName: string;
  readonly title: string;
  /** `YYYYMMDD.HHMMSS` of the build. */
  readonly version: string;
  /** Public origin. */
  readonly publicUrl: string;
  readonly basePath: string;
  /** Whether wallets can sign in and pay here. */
  readonly takesWallets: boolean;
}

/** An OpenAPI document; its shape is checked by the test. */
export type OpenApiDocument = ReturnType<typeof openApiDocument>;

export interface Operation {
  readonly operationId: string;
  readonly tags: readonly string[];
  readonly summary: string;
  readonly description?: string;
  readonly security?: readonly Readonly<Record<string, readonly string[]>>[];
  readonly parameters?: readonly OperationParameter[];
  readonly requestBody?: { readonly required: boolean; readonly content: OperationContent };
  readonly responses: Readonly<Record<string, OperationResponse>>;
  /**
   * The 202 of a priced request whose payment is not settled yet. It is a refusal with the status of
   * a success: among `responses`, generated clients would take it for an answer.
   */
  readonly 'x-pending-payment'?: OperationResponse;
  /** A call cannot be undone by another. */
  readonly 'x-destructive'?: boolean;
}

export type OperationParameter = ReturnType<typeof parameterOf>;

export interface OperationResponse {
  readonly description: string;
  readonly headers?: Readonly<Record<string, HeaderReference>>;
  readonly content?: OperationContent;
}

export type OperationContent = Readonly<
  Record<
    string,
    {
      readonly schema: JsonSchema;
      readonly example?: unknown;
      readonly examples?: Readonly<Record<string, { readonly summary: string; value: unknown }>>;
      /** What the `data:` of each event of a stream holds. */
      readonly 'x-event-schema'?: JsonSchema;
    }
  >
>;

/** The whole document. Throws when a route does not describe itself. */
export function openApiDocument(routes: readonly Route[], options: OpenApiOptions) {
  const components = new Components();
  for (const [name, schema] of Object.entries(ERROR_SCHEMAS)) components.define(name, schema);
  const paths: Record<string, Record<string, Operation>> = {};
  for (const route of routes) {
    const path = route.path.replaceAll(/:([A-Za-z]+)/g, '{$1}');
    paths[path] = {
      ...paths[path],
      // The base path does not stand before these.
      ...(route.root === true ? { servers: [{ url: options.publicUrl }] as never } : {}),
      [route.method.toLowerCase()]: operationOf(route, components, options),
    };
  }
  const document = {
    openapi: '3.1.0',
    info: infoOf(options),
    servers: [{ url: options.publicUrl + options.basePath }],
    tags: tagsOf(routes),
    paths,
    components: {
      schemas: components.all(),
      headers: headerComponents(),
      securitySchemes: securitySchemes(options),
    },
  };
  return named(document, options.serviceName);
}

/** Refusals before a path and its method are known. */
const NO_OPERATION: readonly FaultCode[] = [
  'MALFORMED_REQUEST',
  'NOT_FOUND',
  'METHOD_NOT_ALLOWED',
  'REQUEST_TOO_SLOW',
  'HEADERS_TOO_LARGE',
];

function refusalWords(code: FaultCode): string {
  const allow = code === 'METHOD_NOT_ALLOWED' ? ', and `allow` names the methods' : '';
  return `${FAULTS[code].status} \`${code}\`${allow}`;
}

function infoOf({ title, version }: OpenApiOptions) {
  return {
    title: `${title} API`,
    version,
    description: `A paid inference API in the OpenAI protocol, with blockchain JSON-RPC and wallet payments. Requests are paid from a prepaid balance, with an API key or from a wallet.

Requests that meet no operation are refused too, with the body \`Error\`: ${NO_OPERATION.map(refusalWords).join('; ')}. Every GET answers HEAD as well.`,
  };
}

function tagsOf(routes: readonly Route[]) {
  const used = new Set<string>(routes.map((route) => descriptionOf(route).tag));
  return Object.entries(TAGS)
    .filter(([name]) => used.has(name))
    .map(([name, description]) => ({ name, description }));
}

const SECURITY_SCHEMES = {
  apiKey: {
    type: 'http',
    scheme: 'bearer',
    description:
      'An API key: `Authorization: Bearer SVC_INFERENCE_KEY_…`; `x-api-key` with the key alone is taken too.',
  },
  adminKey: {
    type: 'http',
    scheme: 'bearer',
    description: 'An ADMIN key: `Authorization: Bearer SVC_ADMIN_KEY_…`.',
  },
  wallet: {
    type: 'apiKey',
    in: 'header',
    name: 'SIGN-IN-WITH-X',
    description: 'A signed sign-in of a wallet, base64 of JSON (x402, no account).',
  },
} as const;

function descriptionOf(route: Route): RouteDescription {
  if (route.describe !== undefined) return route.describe;
  throw new Error(`The route ${route.method} ${route.path} does not describe itself`);
}

function operationOf(route: Route, components: Components, options: OpenApiOptions): Operation {
  const about = descriptionOf(route);
  const isPaidHere = route.sells !== undefined && paysHere(route);
  const parameters = parametersOf(route, about, components);
  return {
    operationId: operationId(route),
    tags: [about.tag],
    summary: about.summary,
    ...(about.about === undefined ? {} : { description: about.about }),
    security: securityOf(route, options),
    ...(about.destructive === true || route.method === 'DELETE' ? { 'x-destructive': true } : {}),
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(about.request === undefined
      ? {}
      : {
          requestBody: { required: true, content: contentOf(about.request, 'input', components) },
        }),
    responses: responsesOf(route, about, components),
    ...(isPaidHere
      ? { 'x-pending-payment': refusalOf(route, 202, ['SETTLEMENT_PENDING'], components) }
      : {}),
  };
}

/** `GET /usage/:id` is `getUsageId`. */
function operationId(route: Route): string {
  const words = route.path.split(/[^A-Za-z0-9]+/).filter((word) => word !== '');
  const tail = words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join('');
  return route.method.toLowerCase() + tail;
}

/** A group of headers of the table. */
type HeaderGroup = keyof typeof HEADER_GROUPS;

const SECURITY: Readonly<Record<RouteAuth, NonNullable<Operation['security']>>> = {
  public: [{}],
  key: [{ apiKey: [] }],
  'key-or-wallet': [{ apiKey: [] }, { wallet: [] }],
  'optional-key-or-wallet': [{ apiKey: [] }, { wallet: [] }, {}],
  admin: [{ adminKey: [] }],
  'admin-or-wallet': [{ adminKey: [] }, { wallet: [] }],
  wallet: [{ wallet: [] }],
  operator: [{ adminKey: [] }],
};

/** Without a rail no wallet can sign in; a wallet's route is then there and refuses. */
function securityOf({ auth }: Route, { takesWallets: isTaken }: OpenApiOptions) {
  const schemes = SECURITY[auth];
  const others = schemes.filter((scheme) => !('wallet' in scheme));
  return isTaken ? schemes : others.length > 0 ? others : SECURITY.key;
}

function securitySchemes({ takesWallets: isTaken }: OpenApiOptions) {
  const { wallet, ...others } = SECURITY_SCHEMES;
  return isTaken ? { ...others, wallet } : others;
}

const IDEMPOTENCY_KEY: ParameterDescription = {
  name: 'Idempotency-Key',
  in: 'header',
  about:
    'A name for this request, `[A-Za-z0-9_-]{1,255}`. Repeated within 24 hours with the same body it gets the same answer and costs nothing; with another body it is a 400.',
  schema: z.string().regex(/^[A-Za-z0-9_-]{1,255}$/),
  example: 'b7c1f0de-1',
};

function parametersOf(
  route: Route,
  about: RouteDescription,
  components: Components,
): OperationParameter[] {
  const given = about.parameters ?? [];
  const inPath = [...route.path.matchAll(/:([A-Za-z]+)/g)].map(([, name = '']) => {
    const described = given.find((one) => one.in === 'path' && one.name === name);
    return described ?? { name, in: 'path' as const, about: 'Part of the path' };
  });
  const others = given.filter((one) => one.in !== 'path');
  const all = [...inPath, ...others, ...(takesIdempotencyKey(route) ? [IDEMPOTENCY_KEY] : [])];
  return [
    ...all.map((one) => parameterOf(one, components)),
    ...(about.query === undefined ? [] : queryParameters(about.query, components)),
  ];
}

function parameterOf(one: ParameterDescription, components: Components) {
  return {
    name: one.name,
    in: one.in,
    required: one.in === 'path' || one.required === true,
    description: one.about,
    schema: components.schema(one.schema ?? z.string(), 'input'),
    ...(one.example === undefined ? {} : { example: one.example }),
  };
}

function queryParameters(query: z.ZodObject, components: Components): OperationParameter[] {
  return Object.entries(query.shape).map(([name, member]) => {
    // A coerced number says only as an output that it is one.
    const schema = components.schema(member as z.ZodType, 'output'); // members of an object are types
    const { description = '', ...rest } = schema;
    const required = !(member as z.ZodType).safeParse(undefined).success; // as above
    return { name, in: 'query', required, description: String(description), schema: rest };
  });
}

function contentOf(
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

function responsesOf(
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
  answer: AnswerDescription,
  components: Components,
): OperationResponse {
  const groups: HeaderGroup[] = [...(answer.headers ?? []), ...callerGroups(route)];
  return {
    description: answer.about,
    headers: {
      ...headerReferences(['standard', ...groups]),
      ...headerReferences(answer.someHeaders ?? [], 'sometimes'),
    },
    ...(answer.content === undefined
      ? {}
      : { content: contentOf(answer.content, 'output', components) }),
  };
}

/** Headers that follow from who calls and what is sold. */
function callerGroups(route: Route): HeaderGroup[] {
  const groups: HeaderGroup[] = [];
  // A public route tells a known caller its balance too.
  if (route.operational !== true) groups.push('balance', 'rate');
  if (takesWallets(route) || paysHere(route)) groups.push('payment');
  if (takesIdempotencyKey(route)) groups.push('replay');
  return groups;
}

function refusalOf(
  route: Route,
  status: number,
  codes: readonly FaultCode[],
  components: Components,
): OperationResponse {
  const own = route.describe?.refusalBody;
  const examples = codes.map((code) => {
    const { message, remedy } = FAULTS[code];
    return [
      code,
      { summary: remedy, value: own?.example(message, code) ?? { error: message, code } },
    ];
  });
  return {
    description: codes.map((code) => `\`${code}\`: ${FAULTS[code].message}`).join('\n\n'),
    headers: refusalHeaders(route, status),
    content: {
      'application/json': {
        schema:
          own === undefined
            ? errorSchema(route, codes)
            : ownError(route, status, components.schema(own.schema, 'output')),
        examples: Object.fromEntries(examples) as never, // pairs of a code and its example
      },
    },
  };
}

function refusalHeaders(route: Route, status: number): Record<string, HeaderReference> {
  const isSold = route.sells !== undefined;
  return {
    // A request is refused before its model is known, or after.
    ...headerReferences([...(isSold ? (['model', 'rpc'] as const) : []), 'error'], 'sometimes'),
    ...headerReferences([
      'standard',
      // A payment that is under way (202) is refused without having failed.
      ...(status >= 400 ? (['error'] as const) : []),
      ...callerGroups(route),
      // How to pay is told to whoever came without credentials, wherever it asked.
      ...(status === 402 ? (['payment'] as const) : []),
      'no-store',
      ...(status === 401 ? (['authenticate'] as const) : []),
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

interface HeaderReference {
  readonly $ref: string;
}

/** `sometimes`: headers that the groups always have can be missing here. */
function headerReferences(
  groups: readonly HeaderGroup[],
  when: 'as said' | 'sometimes' = 'as said',
): Record<string, HeaderReference> {
  const headers = groups.flatMap((group) => HEADER_GROUPS[group]);
  return Object.fromEntries(
    headers.map(({ name, always }) => {
      const component = always === true && when === 'sometimes' ? name + SOMETIMES : name;
      return [name, { $ref: `#/components/headers/${component}` }];
    }),
  );
}

interface HeaderComponent {
  readonly description: string;
  readonly required?: true;
  readonly schema: JsonSchema;
  readonly example: string;
}

/** Marks the component of a header that is always there, for answers that may lack it. */
const SOMETIMES = '.sometimes';

function headerComponents() {
  const components: Record<string, HeaderComponent> = {};
  for (const { name, about, example, always } of Object.values(HEADER_GROUPS).flat()) {
    const component = { description: about, schema: { type: 'string' }, example };
    components[name] = always === true ? { ...component, required: true } : component;
    if (always === true) components[name + SOMETIMES] = component;
  }
  return components;
}
