/** Validates a part of a request by its own schema. */
import * as z from 'zod';
import { type FlatIssue, invalidRequest } from '../../json/validation.ts';

export type Place = FlatIssue['path'];

/** Returns the validated value. Throws 400 with the paths below `place`. */
export function checkPart<T extends z.ZodType>(
  schema: T,
  value: unknown,
  place: Place,
): z.infer<T> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const issues = result.error.issues.map((issue) => ({
    ...issue,
    path: [...place, ...issue.path],
  }));
  throw invalidRequest(new z.ZodError(issues));
}
