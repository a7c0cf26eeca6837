/** The part of Swagger UI that the page uses. */
declare module 'swagger-ui-dist/swagger-ui-bundle.js' {
  export default function SwaggerUI(settings: Readonly<Record<string, unknown>>): void;
}
declare module '*.css';
