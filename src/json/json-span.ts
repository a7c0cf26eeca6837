/** Where the members of a JSON-RPC request and of a reply stand in their bytes. */

/** Half-open byte ranges; a start of -1 says that the member is absent. */
export interface RequestSpan {
  readonly start: number;
  readonly end: number;
  readonly versionStart: number;
  readonly versionEnd: number;
  readonly methodStart: number;
  readonly methodEnd: number;
  readonly paramsStart: number;
  readonly paramsEnd: number;
  readonly idStart: number;
  readonly idEnd: number;
}

export interface ReplySpan {
  readonly start: number;
  readonly end: number;
  readonly idStart: number;
  readonly idEnd: number;
  readonly resultStart: number;
  readonly resultEnd: number;
  readonly errorStart: number;
  readonly errorEnd: number;
}
