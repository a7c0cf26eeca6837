/**
 * Turns bytes into a JSON value, and zod's findings into the 400 body: `details` in zod's
 * formatted tree, `issues` flat. Never repeats a value of the request, and never reports more
 * than a bounded number of findings, however bad the body is.
 */
import { isUtf8 } from 'node:buffer';
import { z } from 'zod';
import { Fault } from '../core/faults.ts';
import { childrenOf, isJsonObject } from './json-scan.ts';
import type { ParsedObject } from './json-splice.ts';

/** More findings than this help nobody, and a hostile body could ask for millions. */
export const MAX_REPORTED_ISSUES = 50;

/** Known bodies have some fifty members; each unknown one is looked at by itself. */
const MAX_TOP_MEMBERS = 1_000;

const UNCHECKED = { isUnchecked: true };

export interface FlatIssue {
  readonly code: string;
  readonly path: readonly (string | number)[];
  readonly message: string;
}

/** Parses a body that must be one JSON object in UTF-8. Throws the 400 for anything else. */
export function parseJsonObject(bytes: Buffer): ParsedObject {
  if (!isUtf8(bytes)) throw new Fault('INVALID_JSON', { message: 'The body is not valid UTF-8' });
  const members = childrenOf(bytes, 0, UNCHECKED).spans;
  let body: unknown;
  try {
    body = JSON.parse(bytes.toString());
  } catch (cause) {
    // The parser's sentence quotes the body, so only ours goes out.
    const message = bytes.length === 0 ? 'The body is empty; send a JSON object' : undefined;
    throw new Fault('INVALID_JSON', message === undefined ? { cause } : { message, cause });
  }
  if (!isJsonObject(body)) {
    throw new Fault('INVALID_REQUEST', {
      message: 'The body must be a JSON object',
      details: { _errors: ['Expected a JSON object'] },
      fields: { issues: [{ code: 'invalid_type', path: [], message: 'Expected a JSON object' }] },
    });
  }
  if (members.length > MAX_TOP_MEMBERS) {
    const message = `At most ${MAX_TOP_MEMBERS} members are taken, got ${members.length}`;
    throw refuseIssues([{ code: 'too_big', path: [], message }]);
  }
  return { bytes, body, members };
}

/** The JSON value of a body, of whatever kind it is; 400 with a sentence when it is not JSON. */
export function parseJsonBody(bytes: Buffer): unknown {
  childrenOf(bytes, 0, UNCHECKED);
  try {
    return JSON.parse(bytes.toString());
  } catch (error) {
    // The parser's sentence names the position and holds a snippet of the caller's own body.
    const reason = error instanceof Error ? error.message : 'unknown';
    throw new Fault('INVALID_JSON', { message: `The body is not valid JSON: ${reason}` });
  }
}

/** The 400 for what zod found. */
export function invalidRequest(error: z.ZodError): Fault {
  const flat: FlatIssue[] = [];
  collectIssues(error.issues, [], flat);
  return refuseIssues(flat);
}

/** The 400 for findings made by hand; at least one. */
export function refuseIssues(issues: readonly FlatIssue[]): Fault {
  const reported = issues.slice(0, MAX_REPORTED_ISSUES);
  const first = reported[0];
  const where = first === undefined || first.path.length === 0 ? '' : `${first.path.join('.')}: `;
  return new Fault('INVALID_REQUEST', {
    message: `${where}${first?.message ?? 'The request is not valid'}`,
    details: issueTree(reported),
    fields: { issues: reported },
  });
}

/** zod's formatted tree: `_errors` on every level plus one key per invalid field. */
function issueTree(issues: readonly FlatIssue[]): unknown {
  const zodIssues = issues.map((issue) => ({
    code: 'custom' as const,
    path: [...issue.path],
    message: issue.message,
    input: undefined,
  }));
  return z.formatError(new z.ZodError(zodIssues));
}

function collectIssues(
  issues: readonly z.core.$ZodIssue[],
  prefix: readonly (string | number)[],
  into: FlatIssue[],
): void {
  for (const issue of issues) {
    if (into.length >= MAX_REPORTED_ISSUES) return;
    const path = [...prefix, ...issue.path.map(pathStep)];
    const branch = issue.code === 'invalid_union' ? closestBranch(issue.errors) : undefined;
    if (branch === undefined) into.push({ code: issue.code, path, message: issue.message });
    else collectIssues(branch, path, into);
  }
}

function pathStep(step: PropertyKey): string | number {
  return typeof step === 'number' ? step : String(step);
}

/** Of a union's branches the one that got furthest into the value: what the caller meant. */
function closestBranch(
  branches: readonly (readonly z.core.$ZodIssue[])[],
): readonly z.core.$ZodIssue[] | undefined {
  let best: readonly z.core.$ZodIssue[] | undefined;
  for (const branch of branches) {
    const first = branch[0];
    const enters = first !== undefined && (first.path.length > 0 || first.code !== 'invalid_type');
    if (enters && (best === undefined || first.path.length > (best[0]?.path.length ?? 0))) {
      best = branch;
    }
  }
  return best;
}
