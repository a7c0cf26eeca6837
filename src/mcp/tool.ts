/**
 * Definition of a tool: schemas, description, and calls of HTTP routes of this server. A tool sells
 * nothing itself; the routes sell, at their prices.
 */
import { isJsonObject } from '../json/json-scan.ts';
import * as z from 'zod';
import type { Clock } from '../core/clock.ts';
import { type InternalResponse, readResponse } from '../http/internal-call.ts';
import type { Json } from './protocol.ts';

export type Content =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'image' | 'audio'; readonly data: string; readonly mimeType: string }
  | {
      readonly type: 'resource';
      readonly resource: { readonly uri: string; readonly mimeType: string; readonly blob: string };
    };

export const CostUsd = z.number().describe('Charge in USD.');

export interface ToolResult {
  readonly content: readonly Content[];
  readonly structuredContent?: Json;
  readonly isError?: true;
}

export interface RouteRequest {
  readonly method?: 'GET' | 'POST';
  readonly path: string;
  readonly body?: Json | { readonly type: string; readonly bytes: Buffer };
}

export interface ToolCall {
  /** Runs a route as the caller of the tool. Throws `RouteError`, and if the caller disconnects. */
  run(request: RouteRequest): Promise<InternalResponse>;
  /** Notifies the client of the progress, if it requested that; `progress` must increase. */
  progress(progress: number, message: string, total?: number): void;
  /** Aborts if the caller disconnects or cancels. */
  readonly signal: AbortSignal;
  readonly clock: Clock;
}

/** Effects of a tool, for hosts that require the consent of a person. */
export interface ToolHints {
  readonly readOnlyHint: boolean;
  readonly destructiveHint?: boolean;
  readonly idempotentHint?: boolean;
  readonly openWorldHint: boolean;
}

export interface ToolDefinition<Input extends z.ZodType> {
  readonly name: string;
  readonly title: string;
  readonly hints: ToolHints;
  readonly input: Input;
  readonly output: z.ZodType;
  /** Set if the route is paid, so that a call may contain a payment. */
  readonly isPaid?: true;
  /** Arguments for indexes of paid services. */
  readonly example?: z.input<Input>;
  /** Description with the current price; `undefined` if the tool is not available. */
  readonly about: () => string | undefined | Promise<string | undefined>;
  readonly run: (input: z.infer<Input>, call: ToolCall) => Promise<ToolResult>;
}

export interface Tool extends Omit<ToolDefinition<z.ZodType>, 'input' | 'output' | 'run'> {
  readonly inputSchema: Json;
  readonly outputSchema: Json;
  readonly run: (input: unknown, call: ToolCall) => Promise<ToolResult>;
}

/** Structured content of an error that requires a payment. */
const PAYMENT_REQUIRED = {
  type: 'object',
  description: 'With `isError`: the payment requirements of x402.',
  properties: { x402Version: { type: 'integer' }, accepts: { type: 'array' } },
  required: ['x402Version', 'accepts'],
};

export function defineTool<Input extends z.ZodType>(definition: ToolDefinition<Input>): Tool {
  const { input, output, run, ...rest } = definition;
  // Created on first use, because creating all of them makes the start 10 % slower.
  let inputSchema: Json | undefined;
  let outputSchema: Json | undefined;
  return {
    ...rest,
    get inputSchema() {
      return (inputSchema ??= schemaOf(input, 'input'));
    },
    get outputSchema() {
      return (outputSchema ??= outputSchemaOf(output, rest.isPaid === true));
    },
    run: async (given, call) => {
      const read = input.safeParse(given);
      if (!read.success) return badInput(read.error);
      return run(read.data, call);
    },
  };
}

/** Clients validate results against this schema, including errors. */
function outputSchemaOf(output: z.ZodType, isPaid: boolean): Json {
  const own = schemaOf(output, 'output');
  return isPaid ? { type: 'object', anyOf: [own, PAYMENT_REQUIRED] } : own;
}

function schemaOf(schema: z.ZodType, io: 'input' | 'output'): Json {
  // Without a dialect the schema is 2020-12; some validators reject the name of the dialect.
  const { $schema: _dialect, ...rest } = z.toJSONSchema(schema, { io });
  return rest;
}

const MAX_ISSUES = 20;

/** An error of the tool, not of the protocol, because the calling model can correct it. */
function badInput(error: z.ZodError): ToolResult {
  const lines = error.issues.slice(0, MAX_ISSUES).map(({ path, message }) => {
    return path.length === 0 ? message : `${path.join('.')}: ${message}`;
  });
  return failure(lines.join('\n'));
}

export function failure(text: string): ToolResult {
  return { content: [{ type: 'text', text }], isError: true };
}

/** A structured result, and the same as text for clients that only show text. */
export function structured(value: Json, text = JSON.stringify(value)): ToolResult {
  return { content: [{ type: 'text', text }], structuredContent: value };
}

/** Media and a structured result. */
export function withContent(media: readonly Content[], value: Json): ToolResult {
  const { content, ...rest } = structured(value);
  return { ...rest, content: [...media, ...content] };
}

/** The error response of a route. */
export class RouteError extends Error {
  override readonly name = 'RouteError';
  readonly response: Pick<InternalResponse, 'status' | 'headers'>;
  /** Error code of Farebox; empty without one. */
  readonly code: string;

  constructor(response: InternalResponse, body: unknown) {
    const { message, code } = errorOf(body, response.status);
    super(message);
    this.response = response;
    this.code = code;
  }
}

/** Error bodies are `{error, code}`, that of the OpenAI protocol, or that of a payment. */
function errorOf(body: unknown, status: number): { message: string; code: string } {
  const { error, code, message } = asJson(body);
  if (typeof error === 'object' && error !== null) {
    const own = asJson(error);
    return { message: textOf(own['message']) ?? `Status ${status}`, code: codeOf(own['code']) };
  }
  return {
    message: textOf(message) ?? textOf(error) ?? `Status ${status}`,
    code: codeOf(code ?? error),
  };
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

function codeOf(value: unknown): string {
  const code = textOf(value)?.toUpperCase() ?? '';
  return /^[A-Z0-9_]+$/.test(code) ? code : '';
}

export function asJson(value: unknown): Json {
  return isJsonObject(value) ? value : {};
}

export function listOf(value: unknown): Json[] {
  return Array.isArray(value) ? value.map(asJson) : [];
}

/** The largest JSON response of a route without images. */
export const MAX_JSON_BYTES = 64 * 1024 * 1024;

export async function readJsonResponse(
  response: InternalResponse,
  maxBytes = MAX_JSON_BYTES,
): Promise<Json> {
  return asJson(JSON.parse((await readResponse(response, maxBytes)).toString()));
}

/** Calls a JSON route and returns its response. */
export async function postJson(call: ToolCall, path: string, body: Json): Promise<Json> {
  return await readJsonResponse(await call.run({ path, body }));
}
