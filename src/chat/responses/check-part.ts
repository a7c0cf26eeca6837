/** Checks a part of a request by its schema; what does not fit is the 400 that names the place. */
import { z } from 'zod';
import { invalidRequest, refuseIssues } from '../../json/validation.ts';

export type Place = readonly (string | number)[];

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

/** The 400 for one place, in words of its own. */
export function refusePart(place: Place, message: string): Error {
  return refuseIssues([{ code: 'custom', path: place, message }]);
}
