/** Converts table rows to values: columns are `snake_case` in SQL and `camelCase` in code. */
import * as z from 'zod';
import type { Row } from './contract.ts';

/** A count, size or time: an integer within the range of a JavaScript number. */
export const Whole = z.bigint().transform(Number);
export const Flag = z.bigint().transform((value) => value !== 0n);
/** A column that is `undefined` where it is NULL. */
export const maybe = <T extends z.ZodType>(column: T) =>
  column.nullable().transform((value) => value ?? undefined);
export const jsonText = <T extends z.ZodType>(schema: T) =>
  z
    .string()
    .transform((text): unknown => JSON.parse(text))
    .pipe(schema);

export function snakeCase(name: string): string {
  return name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

/** Returns the column list of a SELECT or RETURNING, and the function that parses a row. */
export function rowShape<S extends z.ZodRawShape>(shape: S) {
  const schema = z.object(shape);
  const columns = Object.keys(shape).map((name) => `${snakeCase(name)} AS "${name}"`);
  return {
    columns: columns.join(', '),
    parse: (row: Row): Readonly<z.infer<typeof schema>> => schema.parse(row),
  };
}
