/**
 * Messages of the Model Context Protocol over HTTP: JSON-RPC 2.0, the supported revisions, and the
 * validation of a request before its method runs.
 *
 * From revision 2026-07-28 on ("modern"), each request has the revision in `_meta` and repeats its
 * method in headers. Before it ("legacy"), a client begins with `initialize`. Both are stateless.
 */
import type { RequestContext } from '../http/request-context.ts';
import { isJsonObject } from '../json/json-scan.ts';

export const MODERN_VERSION = '2026-07-28';
export const LEGACY_VERSIONS = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'] as const;
export const VERSIONS: readonly string[] = [MODERN_VERSION, ...LEGACY_VERSIONS];
const NEWEST_LEGACY = LEGACY_VERSIONS[0];

const VERSION_KEY = 'io.modelcontextprotocol/protocolVersion';
const CAPABILITIES_KEY = 'io.modelcontextprotocol/clientCapabilities';

/** Error codes of JSON-RPC and MCP. */
export const PARSE_ERROR = -32_700;
export const INVALID_REQUEST = -32_600;
const METHOD_NOT_FOUND = -32_601;
export const INVALID_PARAMS = -32_602;
export const INTERNAL_ERROR = -32_603;
const HEADER_MISMATCH = -32_020;
const UNSUPPORTED_VERSION = -32_022;

export type Json = Readonly<Record<string, unknown>>;
export type MessageId = string | number;

/** A request or notification with a valid envelope. */
export interface Message {
  readonly id: MessageId | undefined;
  readonly method: string;
  readonly params: Json;
  readonly meta: Json;
  readonly isModern: boolean;
  /** Capabilities of a modern client; empty for a legacy one. */
  readonly capabilities: Json;
}

/** An error of the protocol with its HTTP status. */
export class ProtocolError extends Error {
  override readonly name = 'ProtocolError';
  readonly code: number;
  readonly status: number;
  readonly data: unknown;

  constructor(
    code: number,
    message: string,
    options: { readonly status?: number; readonly data?: unknown } = {},
  ) {
    super(message);
    this.code = code;
    this.status = options.status ?? 200;
    this.data = options.data;
  }
}

/** Parses a message; returns `undefined` for a response of the client, which is ignored. Throws `ProtocolError`. */
export function readMessage(value: unknown, context: RequestContext): Message | undefined {
  if (!isJsonObject(value) || value['jsonrpc'] !== '2.0') {
    throw invalidRequest('The body must be a JSON-RPC 2.0 message, {"jsonrpc":"2.0",…}');
  }
  const { id: given, method, params = {} } = value;
  if (method === undefined && ('result' in value || 'error' in value)) return undefined;
  if (typeof method !== 'string') throw invalidRequest('method must be a string');
  const id = idOf(value);
  if (id !== given) throw invalidRequest('id must be a string or a whole number below 2^53');
  if (!isJsonObject(params)) throw invalidParams('params must be an object');
  const meta = params['_meta'] ?? {};
  if (!isJsonObject(meta)) throw invalidParams('params._meta must be an object');
  const message = { id, method, params, meta };
  const isModern =
    meta[VERSION_KEY] !== undefined || context.header('mcp-protocol-version') === MODERN_VERSION;
  if (!isModern || id === undefined) {
    requireLegacyVersion(context);
    return { ...message, isModern: false, capabilities: {} };
  }
  return { ...message, isModern, capabilities: checkModern(message, context) };
}

export function idOf(value: unknown): MessageId | undefined {
  const id = isJsonObject(value) ? value['id'] : undefined;
  return typeof id === 'string' || (typeof id === 'number' && Number.isSafeInteger(id))
    ? id
    : undefined;
}

function requireLegacyVersion(context: RequestContext): void {
  const version = context.header('mcp-protocol-version');
  if (version !== undefined && !VERSIONS.includes(version)) throw unsupported(version);
}

/** Validates the headers and fields of a modern request; returns the capabilities. Throws `ProtocolError`. */
function checkModern(
  { method, params, meta }: Pick<Message, 'method' | 'params' | 'meta'>,
  context: RequestContext,
): Json {
  const { [VERSION_KEY]: version, [CAPABILITIES_KEY]: capabilities } = meta;
  if (typeof version !== 'string') throw missingMeta(VERSION_KEY);
  const header = context.header('mcp-protocol-version');
  if (header !== version) throw mismatch('MCP-Protocol-Version', header, version);
  if (version !== MODERN_VERSION) throw unsupported(version);
  if (!isJsonObject(capabilities)) throw missingMeta(CAPABILITIES_KEY);
  const named = context.header('mcp-method');
  if (named !== method) throw mismatch('Mcp-Method', named, method);
  if (method !== 'tools/call') return capabilities;
  const name = plainValue(context.header('mcp-name'));
  const { name: called } = params;
  if (typeof called !== 'string') throw invalidParams('params.name must be the name of a tool');
  if (name !== called) throw mismatch('Mcp-Name', name, called);
  return capabilities;
}

const ENCODED = /^=\?base64\?([A-Za-z0-9+/]*={0,2})\?=$/;

/** Decodes a header value that may be in the Base64 format of the transport. */
function plainValue(value: string | undefined): string | undefined {
  const encoded = value === undefined ? undefined : ENCODED.exec(value)?.[1];
  return encoded === undefined ? value : Buffer.from(encoded, 'base64').toString();
}

/** The revision for a legacy client: the requested one if supported, else the newest. */
export function negotiated(requested: unknown): string {
  return LEGACY_VERSIONS.find((version) => version === requested) ?? NEWEST_LEGACY;
}

function invalidRequest(message: string): ProtocolError {
  return new ProtocolError(INVALID_REQUEST, message, { status: 400 });
}

export function invalidParams(message: string): ProtocolError {
  return new ProtocolError(INVALID_PARAMS, message);
}

function missingMeta(key: string): ProtocolError {
  return new ProtocolError(INVALID_PARAMS, `params._meta must have ${key}`, { status: 400 });
}

function mismatch(header: string, value: string | undefined, body: string): ProtocolError {
  const given = value === undefined ? 'is missing' : `is ${JSON.stringify(value.slice(0, 100))}`;
  const message = `Header mismatch: ${header} ${given}, and the body has ${JSON.stringify(body.slice(0, 100))}`;
  return new ProtocolError(HEADER_MISMATCH, message, { status: 400 });
}

function unsupported(requested: string): ProtocolError {
  return new ProtocolError(UNSUPPORTED_VERSION, 'Unsupported protocol version', {
    status: 400,
    data: { supported: VERSIONS, requested: requested.slice(0, 100) },
  });
}

export function methodNotFound({ method, isModern }: Message): ProtocolError {
  const name = JSON.stringify(method.slice(0, 100));
  const message = `Method not found: ${name}; this server only has tools`;
  return new ProtocolError(METHOD_NOT_FOUND, message, { status: isModern ? 404 : 200 });
}

export function resultOf(id: MessageId, result: Json): Json {
  return { jsonrpc: '2.0', id, result };
}

/** `id` is absent if it could not be read. */
export function errorOf(id: MessageId | undefined, { code, message, data }: ProtocolError): Json {
  const error = { code, message, ...(data === undefined ? {} : { data }) };
  return { jsonrpc: '2.0', ...(id === undefined ? {} : { id }), error };
}
