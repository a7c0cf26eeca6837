/** GBNF rules for the string formats of JSON Schema. */
const DAY = '( "0" [1-9] | [12] [0-9] )';
/** Excludes 29 February, which depends on the year. */
const DATE = `[0-9]{4} "-" ( ( "0" [13578] | "1" [02] ) "-" ( ${DAY} | "3" [01] ) | ( "0" [469] | "11" ) "-" ( ${DAY} | "30" ) | "02-" ( "0" [1-9] | "1" [0-9] | "2" [0-8] ) )`;
const TIME = '( [01] [0-9] | "2" [0-3] ) ":" [0-5] [0-9] ":" [0-5] [0-9] "Z"';
const HEX_4 = '[0-9a-f]{4} "-"';
const BYTE = '( [0-9] | [1-9] [0-9] | "1" [0-9]{2} | "2" [0-4] [0-9] | "25" [0-5] )';
const LABEL = '[a-z] [a-z0-9]{0,20}';
const HOST = `${LABEL} ( "." ${LABEL} ){1,3}`;
/** The text between the quotes. Most rules accept a subset with every meaning of the format. */
export const FORMATS: ReadonlyMap<string, string> = new Map([
  ['date', DATE],
  ['time', TIME],
  ['date-time', `${DATE} "T" ${TIME}`],
  [
    'duration',
    '"P" ( [1-9] [0-9]{0,2} "D" ( "T" [1-9] [0-9]? "H" )? | "T" [1-9] [0-9]{0,2} [HMS] )',
  ],
  ['uuid', `[0-9a-f]{8} "-" ${HEX_4} ${HEX_4} ${HEX_4} [0-9a-f]{12}`],
  ['hostname', HOST],
  ['email', `[a-z0-9] [a-z0-9_-]{0,20} ( "." [a-z0-9_-]{1,20} ){0,2} "@" ${HOST}`],
  ['ipv4', `${BYTE} ( "." ${BYTE} ){3}`],
  ['ipv6', '[0-9a-f]{1,4} ( ":" [0-9a-f]{1,4} ){7}'],
  ['uri', `"http" "s"? "://" ${HOST} ( "/" [a-zA-Z0-9._~-]{0,40} ){0,6}`],
]);
export const ENFORCED_FORMATS: ReadonlySet<string> = new Set(FORMATS.keys());
