/**
 * Descriptions of routes, from which the OpenAPI document and the page at `/docs` are made. Schemas
 * are the ones that validate. The document adds what follows from the stages (credentials, body
 * limits, shutdown), so a route describes only what is its own.
 */
import * as z from 'zod';
import type { FaultCode } from '../core/faults.ts';
import type { HEADER_GROUPS } from './openapi/headers.ts';

export const TAGS = {
  Chat: 'Chat with language models, streaming or not.',
  Responses: 'Chat in the Responses protocol, for Codex, Agents SDK and AI SDK.',
  Embeddings: 'Convert texts to vectors.',
  Rerank: 'Sort documents by how well they fit a query.',
  Moderation: 'Detect harmful texts and images.',
  Images: 'Generate and edit images.',
  Video: 'Generate and transcribe videos.',
  Audio: 'Generate speech and music, and transcribe speech.',
  Batches: 'Run many requests from a file within a day, at a lower price.',
  Models: 'List models with their capabilities and prices.',
  'Blockchain RPC': 'JSON-RPC of blockchain networks, priced in credits.',
  MCP: 'All of this as tools for agents, in the Model Context Protocol.',
  Wallets: 'Pay from a wallet with x402, without an account.',
  'API keys': 'Manage keys and their limits, and list rejected requests.',
  Members: 'People of an account with their roles, and invitations.',
  'Usage and billing': 'Usage, costs and balances.',
  Webhooks: 'Notifications when the balance, a key or a day reaches a threshold.',
  Characters: 'Personas for chat.',
  Console:
    'Browser sessions. The session cookie replaces the credential on every route, with the rights of its key or wallet. A write must send the `csrfToken` of the session in the header `X-CSRF-Token`, from a page of this origin.',
  Operator: "For ADMIN keys of the operator's own account.",
  Operations: 'Health, metrics and this documentation.',
} as const;
export type Tag = keyof typeof TAGS;

/** A schema that zod cannot express: bytes, plain text. */
export type JsonSchema = Readonly<Record<string, unknown>>;

export interface ContentDescription {
  readonly type: string;
  readonly schema: z.ZodType | JsonSchema;
  /** Must fit the schema; shown as the sample. */
  readonly example?: unknown;
  /** For `text/event-stream`: the `data:` of each event. */
  readonly events?: z.ZodType;
}

/** Groups of response headers that a route names; the document adds the others. */
type HeaderGroup = Exclude<
  keyof typeof HEADER_GROUPS,
  'standard' | 'error' | 'allow' | 'authenticate'
>;

export interface ResponseDescription {
  readonly status: number;
  readonly about: string;
  readonly content?: readonly ContentDescription[];
  readonly headers?: readonly HeaderGroup[];
  /** Groups that only some of these responses have. */
  readonly someHeaders?: readonly HeaderGroup[];
}

export interface ParameterDescription {
  readonly name: string;
  readonly in: 'path' | 'query' | 'header';
  readonly about: string;
  readonly schema?: z.ZodType;
  /** As sent in the URL or the header. */
  readonly example?: string;
  readonly required?: boolean;
}

export interface RouteDescription {
  readonly tag: Tag;
  /** A few words, as a title. */
  readonly summary: string;
  /** Markdown: paragraphs, `code`, **bold**. */
  readonly about?: string;
  readonly parameters?: readonly ParameterDescription[];
  /** Every member is a query parameter. */
  readonly query?: z.ZodObject;
  readonly request?: readonly ContentDescription[];
  /** No other route can undo it, so that tools confirm a call. Every DELETE is destructive. */
  readonly destructive?: true;
  /** One per success status. */
  readonly response: ResponseDescription | readonly ResponseDescription[];
  /** Error codes of the route itself. */
  readonly refusals?: readonly FaultCode[];
  /** The error body of a route with its own protocol. */
  readonly refusalBody?: {
    readonly schema: z.ZodType;
    readonly example: (message: string, code: FaultCode) => unknown;
    /** The statuses of a code. Default: that of the error table. */
    readonly statuses?: (code: FaultCode) => readonly number[];
  };
}

export function listOf<T extends z.ZodType>(item: T, order: string) {
  return z.object({
    object: z.literal('list').describe('Kind of the object.'),
    data: z.array(item).describe(order),
  });
}

export function jsonContent(schema: z.ZodType, example: unknown): ContentDescription[] {
  return [{ type: 'application/json', schema, example }];
}

export function textContent(type: string, example?: string): ContentDescription {
  return { type, schema: { type: 'string' }, example };
}

/** A stream of events: the schema of `data:`, and an example of the wire. */
export function eventContent(events: z.ZodType, example: string): ContentDescription {
  return { ...textContent('text/event-stream', example), events };
}

export function bytesContent(type: string, example?: string): ContentDescription {
  return { type, schema: { type: 'string', contentMediaType: type }, example };
}

/** A form; its properties are JSON Schema, and files are `fileField`. */
export function formContent(
  required: readonly string[],
  properties: Readonly<Record<string, unknown>>,
): ContentDescription {
  return { type: 'multipart/form-data', schema: { type: 'object', required, properties } };
}

export function fileField(description: string): JsonSchema {
  return { type: 'string', contentMediaType: 'application/octet-stream', description };
}

/** A JSON response of status 200; `headers` are groups beside the standard ones. */
export function jsonResponse(
  about: string,
  schema: z.ZodType,
  example: unknown,
  ...headers: readonly HeaderGroup[]
): ResponseDescription {
  return { status: 200, about, headers, content: jsonContent(schema, example) };
}
