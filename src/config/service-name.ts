/**
 * The service's name and every public word that is made from it: header prefix, parameter object,
 * key prefixes, search tool. The name is checked once, in the configuration; all other code asks
 * here instead of joining strings.
 */
import { z } from 'zod';

/** Long enough for a brand, short enough for header names. */
const SERVICE_NAME_CHARACTERS = 20;

/** `svc` by default: a lowercase letter, then lowercase letters or digits. */
export const ServiceName = z
  .string()
  .regex(
    new RegExp(`^[a-z][a-z0-9]{0,${SERVICE_NAME_CHARACTERS - 1}}$`),
    `Must be 1 to ${SERVICE_NAME_CHARACTERS} lowercase letters or digits and start with a letter`,
  );

export interface ServiceWords {
  readonly name: string;
  /** `x-svc-`: put a lowercase word behind it. */
  readonly headerPrefix: string;
  /** `svc_parameters`: the object in chat requests and answers. */
  readonly parametersKey: string;
  /** `SVC_INFERENCE_KEY_`. */
  readonly inferenceKeyPrefix: string;
  /** `SVC_ADMIN_KEY_`. */
  readonly adminKeyPrefix: string;
  /** `svc_web_search_documents`: the tool call that carries search results. */
  readonly searchDocumentsTool: string;
  /** `svc-`: the prefix that some tools put before a model id, and that resolution ignores. */
  readonly modelPrefix: string;
}

/** All public words of one service name; the name must have passed `ServiceName`. */
export function serviceWords(name: string): ServiceWords {
  return {
    name,
    headerPrefix: `x-${name}-`,
    parametersKey: `${name}_parameters`,
    inferenceKeyPrefix: `${name.toUpperCase()}_INFERENCE_KEY_`,
    adminKeyPrefix: `${name.toUpperCase()}_ADMIN_KEY_`,
    searchDocumentsTool: `${name}_web_search_documents`,
    modelPrefix: `${name}-`,
  };
}
