/**
 * Converts zod issues into the 400 body: `details` in zod's formatted tree, `issues` flat. Contains
 * no values of the request and at most `MAX_REPORTED_ISSUES` issues.
 */
import * as z from 'zod';
import { Fault } from '../core/faults.ts';

/** Bounds the response: a hostile body can have millions of issues. */
const MAX_REPORTED_ISSUES = 50;

export interface FlatIssue {
  readonly code: string;
  readonly path: readonly (string | number)[];
  readonly message: string;
}

export function invalidRequest(error: z.ZodError): Fault {
  const flat: FlatIssue[] = [];
  collectIssues(error.issues, [], flat);
  return refuseIssues(flat);
}

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

/** The 400 for one member. */
export function refuseMember(path: FlatIssue['path'], message: string, code = 'custom'): Fault {
  return refuseIssues([{ code, path, message }]);
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

/** Returns the issues of the union branch that matched most of the value. */
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
