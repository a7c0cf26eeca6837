/**
 * Search results shown as a tool call (`return_search_results_as_documents`): the name carries
 * the service's name, the id is fixed, the arguments hold the documents.
 */
import type { JsonObject } from '../../json/json-scan.ts';

export interface SearchDocument {
  readonly id: string;
  readonly title: string;
  readonly url: string;
  readonly snippet: string;
  readonly published_at: string | null;
}

export const DOCUMENTS_CALL_ID = 'web_search_call';

/** The call as it stands in `message.tool_calls`. */
export function documentsCall(
  serviceName: string,
  documents: readonly SearchDocument[],
): JsonObject {
  return {
    id: DOCUMENTS_CALL_ID,
    type: 'function',
    function: {
      name: `${serviceName}_web_search_documents`,
      arguments: JSON.stringify({ documents }),
    },
  };
}
