/** Operations of the OpenAPI document with the components that they refer to in their places. */
import type {
  OpenApiDocument,
  Operation,
  OperationContent,
  OperationParameter,
  OperationResponse,
  Reference,
} from '../../src/http/openapi/openapi.ts';

export interface WholeOperation extends Operation {
  readonly parameters?: readonly OperationParameter[];
  readonly responses: Readonly<Record<string, OperationResponse>>;
  readonly 'x-pending-payment'?: OperationResponse;
}

/** The operation with the components that it refers to, schemas and headers aside, in their places. */
export function wholeOperation(operation: Operation, document: OpenApiDocument): WholeOperation {
  const { parameters, responses, 'x-pending-payment': pending } = operation;
  const entries = Object.entries(responses).map(([status, response]) => [
    status,
    wholeResponse(response, document),
  ]);
  return {
    ...operation,
    ...(parameters && { parameters: parameters.map((one) => resolved(one, document)) }),
    responses: Object.fromEntries(entries) as WholeOperation['responses'], // the same statuses
    ...(pending && { 'x-pending-payment': wholeResponse(pending, document) }),
  } as WholeOperation; // each part above is whole
}

function wholeResponse(
  response: OperationResponse | Reference,
  document: OpenApiDocument,
): OperationResponse {
  const { content, ...others } = resolved(response, document);
  if (content === undefined) return others;
  const entries = Object.entries(content).map(([type, { examples, ...rest }]) => {
    const shown = Object.entries(examples ?? {}).map(([name, one]) => [
      name,
      resolved(one, document),
    ]);
    return [type, { ...rest, ...(examples && { examples: Object.fromEntries(shown) }) }];
  });
  return { ...others, content: Object.fromEntries(entries) as OperationContent }; // the same types
}

/** Resolves a reference to its component. */
function resolved<T extends object>(part: T | Reference, document: OpenApiDocument): T {
  if (!('$ref' in part)) return part;
  const names = part.$ref.split('/').slice(1);
  const found = names.reduce<unknown>(
    (node, name) => (node as Record<string, unknown> | undefined)?.[name], // a node of JSON
    document,
  );
  if (found === undefined) throw new Error(`The document has no ${part.$ref}`);
  return found as T; // references lead to parts of their own kind
}
