/** Generates the OpenAPI 3.1 document of the server from its routes and the schemas that validate requests. */
import * as z from 'zod';
import { FAULTS, type FaultCode } from '../../core/faults.ts';
import { type ParameterDescription, type RouteDescription, TAGS } from '../describe.ts';
import { takesIdempotencyKey } from '../idempotent.ts';
import type { Route, RouteAuth } from '../route.ts';
import { commonHeaders, headerComponents } from './headers.ts';
import { ERROR_SCHEMAS } from './error-schemas.ts';
import { paysHere } from './refusals.ts';
import {
  contentOf,
  exampleComponents,
  type OperationContent,
  type OperationResponse,
  type Reference,
  refusalOf,
  responsesOf,
  SharedResponses,
} from './responses.ts';
import { Components, named } from './schemas.ts';

export { HEADER_GROUPS, PROTOCOL_HEADERS } from './headers.ts';
export type { OperationContent, OperationResponse, Reference } from './responses.ts';

export interface OpenApiOptions {
  readonly serviceName: string;
  readonly title: string;
  /** `YYYYMMDD.HHMMSS` of the build. */
  readonly version: string;
  /** Public origin. */
  readonly publicUrl: string;
  readonly basePath: string;
  /** True if wallets can sign in and pay. */
  readonly takesWallets: boolean;
}

export type OpenApiDocument =
  ReturnType<typeof openApiDocument> extends Generator<undefined, infer Made> ? Made : never;

export interface Operation {
  readonly operationId: string;
  readonly tags: readonly string[];
  readonly summary: string;
  readonly description?: string;
  readonly security?: readonly Readonly<Record<string, readonly string[]>>[];
  readonly parameters?: readonly (OperationParameter | Reference)[];
  readonly requestBody?: { readonly required: boolean; readonly content: OperationContent };
  readonly responses: Readonly<Record<string, OperationResponse | Reference>>;
  /** The 202 of a pending payment. It is not in `responses`, because clients would treat it as a success. */
  readonly 'x-pending-payment'?: OperationResponse | Reference;
  /** The operation cannot be undone. */
  readonly 'x-destructive'?: boolean;
}

export type OperationParameter = ReturnType<typeof parameterOf>;

/** Yields every few milliseconds, and returns the document. Throws for a route without a description. */
export function* openApiDocument(routes: readonly Route[], options: OpenApiOptions) {
  const components = new Components();
  const shared = new SharedResponses();
  for (const [name, schema] of Object.entries(ERROR_SCHEMAS)) components.define(name, schema);
  const paths: Record<string, Record<string, Operation>> = {};
  for (const route of routes) {
    const path = route.path.replaceAll(/:([A-Za-z]+)/g, '{$1}');
    paths[path] = {
      ...paths[path],
      // These paths do not begin with the base path.
      ...(route.root === true ? { servers: [{ url: options.publicUrl }] as never } : {}),
      [route.method.toLowerCase()]: operationOf(route, { components, shared, options }),
    };
    yield;
  }
  const document = {
    openapi: '3.1.0',
    info: infoOf(options),
    servers: [{ url: options.publicUrl + options.basePath }],
    tags: tagsOf(routes),
    paths,
    components: {
      schemas: components.all(),
      responses: shared.all,
      parameters: {
        IdempotencyKey: parameterOf(IDEMPOTENCY_KEY, components),
        Metadata: parameterOf(METADATA, components),
      },
      examples: exampleComponents(routes),
      headers: headerComponents(),
      securitySchemes: securitySchemes(options),
    },
    'x-common-headers': commonHeaders(),
  };
  yield;
  return yield* named(document, options.serviceName);
}

/** Errors of requests that match no operation. */
const NO_OPERATION: readonly FaultCode[] = [
  'MALFORMED_REQUEST',
  'NOT_FOUND',
  'METHOD_NOT_ALLOWED',
  'REQUEST_TOO_SLOW',
  'HEADERS_TOO_LARGE',
];

function errorText(code: FaultCode): string {
  const allow = code === 'METHOD_NOT_ALLOWED' ? ', with the allowed methods in `allow`' : '';
  return `${FAULTS[code].status} \`${code}\`${allow}`;
}

function infoOf({ title, version }: OpenApiOptions) {
  return {
    title: `${title} API`,
    version,
    description: `A paid inference API in the OpenAI protocol, with blockchain JSON-RPC and wallet payments. Requests are paid from the prepaid balance of an API key or a wallet.

Requests that match no operation receive an error response with the body \`Error\`: ${NO_OPERATION.map(errorText).join('; ')}. Every GET operation also supports HEAD.

Operations do not repeat common headers: \`x-common-headers\` of this document lists the headers of every response, of responses to authenticated callers, and of error responses.`,
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
    description: 'API key: `Authorization: Bearer SVC_INFERENCE_KEY_…`, or the key in `x-api-key`.',
  },
  adminKey: {
    type: 'http',
    scheme: 'bearer',
    description: 'ADMIN key: `Authorization: Bearer SVC_ADMIN_KEY_…`.',
  },
  wallet: {
    type: 'apiKey',
    in: 'header',
    name: 'SIGN-IN-WITH-X',
    description: 'Signed sign-in of a wallet, base64 of JSON (x402, without an account).',
  },
} as const;

function descriptionOf(route: Route): RouteDescription {
  if (route.describe !== undefined) return route.describe;
  throw new Error(`The route ${route.method} ${route.path} has no description`);
}

interface DocumentParts {
  readonly components: Components;
  readonly shared: SharedResponses;
  readonly options: OpenApiOptions;
}

function operationOf(route: Route, { components, shared, options }: DocumentParts): Operation {
  const about = descriptionOf(route);
  const isPaidHere = route.sells !== undefined && paysHere(route);
  const parameters = parametersOf(route, about, components);
  return {
    operationId: operationId(route),
    tags: [about.tag],
    summary: about.summary,
    ...(about.about !== undefined && { description: about.about }),
    security: securityOf(route, options),
    ...((about.destructive === true || route.method === 'DELETE') && { 'x-destructive': true }),
    ...(parameters.length > 0 && { parameters }),
    ...(about.request && {
      requestBody: { required: true, content: contentOf(about.request, 'input', components) },
    }),
    responses: responsesOf(route, about, components, shared),
    ...(isPaidHere && {
      'x-pending-payment': shared.refer(
        202,
        refusalOf(route, 202, ['SETTLEMENT_PENDING'], components),
      ),
    }),
  };
}

/** `GET /usage/:id` -> `getUsageId`. */
function operationId(route: Route): string {
  const words = route.path.split(/[^A-Za-z0-9]+/).filter((word) => word !== '');
  const tail = words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join('');
  return route.method.toLowerCase() + tail;
}

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

/** Without payment rails no wallet can sign in, and wallet routes return an error. */
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
    'Unique key of this request, `[A-Za-z0-9_-]{1,255}`. A repeat with the same body within 24 hours receives the stored response and costs nothing. With another body it gets 400.',
  schema: z.string().regex(/^[A-Za-z0-9_-]{1,255}$/),
  example: 'b7c1f0de-1',
};
const METADATA: ParameterDescription = {
  name: 'x-svc-metadata',
  in: 'header',
  about:
    'Tags of the request, for bodies without `metadata`: a JSON object in ASCII, with other characters escaped. Members of the body take precedence.',
  schema: z.string(),
  example: '{"user":"anna"}',
};

function parametersOf(
  route: Route,
  about: RouteDescription,
  components: Components,
): (OperationParameter | Reference)[] {
  const given = about.parameters ?? [];
  const inPath = [...route.path.matchAll(/:([A-Za-z]+)/g)].map(([, name = '']) => {
    const described = given.find((one) => one.in === 'path' && one.name === name);
    return described ?? { name, in: 'path' as const, about: 'Part of the path.' };
  });
  const others = given.filter((one) => one.in !== 'path');
  const shared = [
    ...(takesIdempotencyKey(route) ? ['IdempotencyKey'] : []),
    ...(route.sells === undefined ? [] : ['Metadata']),
  ];
  return [
    ...[...inPath, ...others].map((one) => parameterOf(one, components)),
    ...shared.map((name) => ({ $ref: `#/components/parameters/${name}` })),
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
    // Only the output schema of a coerced number has the type `number`.
    const schema = components.schema(member as z.ZodType, 'output'); // members of an object are types
    const { description = '', ...rest } = schema;
    const required = !(member as z.ZodType).safeParse(undefined).success; // as above
    return { name, in: 'query', required, description: String(description), schema: rest };
  });
}
