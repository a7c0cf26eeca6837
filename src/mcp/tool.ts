/**
 * What a tool is: its schemas, what it says of itself, and how it runs routes of the server. A tool
 * sells nothing itself: what it does is what the HTTP route does, for the same price.
 */
import { isJsonObject } from '../json/json-scan.ts';
import { z } from 'zod';
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

export const CostUsd = z.number().describe('What was charged.');

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
  /** Runs a route for whoever calls the tool. Throws `RouteRefusal`, and when the caller leaves. */
  run(request: RouteRequest): Promise<InternalResponse>;
  /** Says how far it is, where the client asked for that; `progress` only grows. */
  progress(progress: number, message: string, total?: number): void;
  /** Aborts when the caller leaves or cancels. */
  readonly signal: AbortSignal;
  readonly clock: Clock;
}

/** What a tool may do, for hosts that ask a person first. */
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
  /** Set for a tool whose route is paid, so that a payment may come with its call. */
  readonly isPaid?: true;
  /** Arguments as a caller sends them, for indexes of what is paid. */
  readonly example?: z.input<Input>;
  /** What it does and what it costs now; `undefined` while nothing here can do it. */
  readonly about: () => string | undefined | Promise<string | undefined>;
  readonly run: (input: z.infer<Input>, call: ToolCall) => Promise<ToolResult>;
}

export interface Tool extends Omit<ToolDefinition<z.ZodType>, 'input' | 'output' | 'run'> {
  readonly inputSchema: Json;
  readonly outputSchema: Json;
  readonly run: (input: unknown, call: ToolCall) => Promise<ToolResult>;
}

/** A result beside `isError` that says how to pay, in place of the tool's own. */
const PAYMENT_REQUIRED = {
  type: 'object',
  description: 'With `isError`: what to pay, as x402 says it.',
  properties: { x402Version: { type: 'integer' }, accepts: { type: 'array' } },
  required: ['x402Version', 'accepts'],
};

export function defineTool<Input extends z.ZodType>(definition: ToolDefinition<Input>): Tool {
  const { input, output, run, ...rest } = definition;
  // Made when they are first asked for: a start that makes all of them takes a tenth longer.
  let inputSchema: Json | undefined;
  let outputSchema: Json | undefined;
  return {
    ...rest,
    get inputSchema() {
      return (inputSchema ??= schemaOf(input, 'input'));
    },
    get outputSchema() {
      return (outputSchema ??= answerSchemaOf(output, rest.isPaid === true));
    },
    run: async (given, call) => {
      const read = input.safeParse(given);
      if (!read.success) return badInput(read.error);
      return run(read.data, call);
    },
  };
}

/** Clients check what they get against it, a refusal too. */
function answerSchemaOf(output: z.ZodType, isPaid: boolean): Json {
  const own = schemaOf(output, 'output');
  return isPaid ? { type: 'object', anyOf: [own, PAYMENT_REQUIRED] } : own;
}

function schemaOf(schema: z.ZodType, io: 'input' | 'output'): Json {
  // Without a dialect it is 2020-12, and validators that know no other do not stumble over its name.
  const { $schema: _dialect, ...rest } = z.toJSONSchema(schema, { io });
  return rest;
}

const MAX_ISSUES = 20;

/** The model that called it can mend it: no error of the protocol. */
function badInput(error: z.ZodError): ToolResult {
  const lines = error.issues.slice(0, MAX_ISSUES).map(({ path, message }) => {
    return path.length === 0 ? message : `${path.join('.')}: ${message}`;
  });
  return failure(lines.join('\n'));
}

export function failure(text: string): ToolResult {
  return { content: [{ type: 'text', text }], isError: true };
}

/** What a program reads, and the same as text for clients that show nothing else. */
export function structured(value: Json, text = JSON.stringify(value)): ToolResult {
  return { content: [{ type: 'text', text }], structuredContent: value };
}

/** What was made, and what a program reads of it, which is said as text too. */
export function withContent(made: readonly Content[], value: Json): ToolResult {
  const { content, ...rest } = structured(value);
  return { ...rest, content: [...made, ...content] };
}

export class RouteRefusal extends Error {
  override readonly name = 'RouteRefusal';
  readonly answer: Pick<InternalResponse, 'status' | 'headers'>;
  /** Of the catalogue of refusals; empty when the answer has none. */
  readonly code: string;

  constructor(answer: InternalResponse, body: unknown) {
    const { message, code } = wordsOf(body, answer.status);
    super(message);
    this.answer = answer;
    this.code = code;
  }
}

/** Error bodies are `{error, code}`, that of the OpenAI protocol, or that of a payment. */
function wordsOf(body: unknown, status: number): { message: string; code: string } {
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

/** As large as the largest answer of a JSON route that a tool asks, but for pictures. */
const MAX_JSON_BYTES = 64 * 1024 * 1024;

export async function readJsonResponse(
  answer: InternalResponse,
  maxBytes = MAX_JSON_BYTES,
): Promise<Json> {
  return asJson(JSON.parse((await readResponse(answer, maxBytes)).toString()));
}
