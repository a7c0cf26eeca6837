/** Types of the native `secp256k1` package, which has none. */
declare module 'secp256k1' {
  interface Secp256k1 {
    /** The public key that made a signature; throws if there is none. */
    ecdsaRecover(
      signature: Uint8Array,
      recovery: number,
      digest: Uint8Array,
      compressed: boolean,
    ): Uint8Array;
    publicKeyCreate(privateKey: Uint8Array, compressed: boolean): Uint8Array;
    /** A signature of 64 bytes (RFC 6979, lower s) and its recovery id. */
    ecdsaSign(
      digest: Uint8Array,
      privateKey: Uint8Array,
    ): { readonly signature: Uint8Array; readonly recid: number };
  }
  const secp256k1: Secp256k1;
  export default secp256k1;
}
